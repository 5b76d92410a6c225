"""Brings a fresh Debian machine to the point where the project's commands run, and runs them.

Standard library only: this is what runs before anything is installed. Everything that is built or downloaded lands in
the XDG cache, keyed by what it is made of, so that a second run (and a second clone) starts warm. What a step builds
belongs to the module that it calls; here is only the order, the progress line and the one-line reason when it fails.
"""
