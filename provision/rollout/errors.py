"""What can go wrong where node state lives, as far as the rollout reacts to it.

What is wrong with one node alone is a value, ``NodeProblem``.

GrapnelError
└── ClusterError
    ├── UnreachableError   1   the API server does not answer, or only with errors of its own
    ├── ConflictError      1   others changed the node meanwhile: observe and decide again
    ├── HeldError          1   another engine holds the lease
    ├── LeaseLostError     1   the lease was lost: nothing more may be changed
    └── RuntimeClassError  1   a RuntimeClass of that name has another handler

``provision.cluster.errors`` derives more of them.
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class ClusterError(GrapnelError):
    """Node state cannot be read or written."""


class UnreachableError(ClusterError):
    """The API server does not answer, or only with errors of its own."""


class ConflictError(ClusterError):
    """Others changed the node meanwhile: observe it and decide again."""


class HeldError(ClusterError):
    """Another engine holds the lease."""


class LeaseLostError(ClusterError):
    """The lease was lost: nothing more may be changed."""


class RuntimeClassError(ClusterError):
    """A RuntimeClass of that name has another handler, which cannot be changed."""
