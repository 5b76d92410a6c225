"""The machine that the laboratory runs on: its commands, locks, folders, apt configuration and what it must have.

Knows nothing of nodes, packages or GPUs; every other room of the laboratory may use it. Standard library only.
"""
