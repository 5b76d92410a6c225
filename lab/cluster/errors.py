"""Errors of the cluster.

LabError
└── ClusterError    the request does not fit machine or cluster: a port in use, too little memory, left-overs
    └── StartError  a part did not come up; ``hint`` is the end of what it logged
"""

from __future__ import annotations

from lab.machine.errors import LabError


class ClusterError(LabError):
    """The request does not fit the machine or the cluster."""


class StartError(ClusterError):
    """A part of the cluster did not come up."""
