"""What ``make`` runs: brings a Debian machine to the point where the project's commands work, and runs them.

Standard library only until the environment is made. Everything that is built or downloaded lands in the XDG cache,
keyed by what it is made of, so that a second run (and a second clone) starts warm. What a step builds belongs to the
module that it calls; here is only the order, what runs beside what, and how it is told.
"""
