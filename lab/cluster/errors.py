"""Errors of the cluster.

LabError
└── ClusterError    the machine or cluster does not allow it: a port in use, too little memory, leftovers
    └── StartError  a component did not start; ``hint`` is the end of what it logged
"""

from __future__ import annotations

from lab.machine.errors import LabError


class ClusterError(LabError):
    """The machine or the cluster does not allow the request."""


class StartError(ClusterError):
    """A component of the cluster did not start."""
