"""Wraps the machine that the lab runs on: commands, locks, folders, apt configuration and required packages.

Independent of nodes, packages and GPUs; every other folder of the lab may use it. Standard library only.
"""
