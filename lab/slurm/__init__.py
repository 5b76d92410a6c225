"""Runs Debian's own Slurm on this machine: munged, slurmctld, and a slurmd for each node, in namespaces of their own.

A node is a name and a port: its slurmd believes in a host name of its own. Nothing of it outlives the test that started
it, and nothing of this machine is changed.
"""

from lab.slurm.machine import SlurmMachine
from lab.slurm.packages import ensure

__all__ = ["SlurmMachine", "ensure"]
