"""Speaks to Slurm with scontrol and squeue: which nodes take work, what runs on them, drain and resume.

`client` runs the commands, everything else is pure.
"""
