"""What can go wrong where node state lives; what is wrong with one node is a value, ``NodeProblem``.

GrapnelError
└── ClusterError
    ├── KubeconfigError    1   no usable kubeconfig: file, context, credentials
    ├── UnreachableError   1   the API server does not answer, or only with errors of its own
    ├── ForbiddenError     1   the API server does not allow it: names the permission
    ├── RefusedError       1   the API server refuses for another reason: its own words
    ├── RecordError        1   what is remembered of a node cannot be read
    ├── ConflictError      1   somebody else changed the node meanwhile: observe and decide again
    ├── HeldError          1   another engine holds the lease
    ├── LeaseLostError     1   the lease was lost: nothing more may be changed
    ├── RuntimeClassError  1   a RuntimeClass of that name has another handler
    └── JournalError       1   the journal cannot be read or written
"""

from __future__ import annotations

from provision.errors import GrapnelError


class ClusterError(GrapnelError):
    """What node state lives in cannot be used."""


class KubeconfigError(ClusterError):
    """There is no usable kubeconfig."""


class UnreachableError(ClusterError):
    """The API server does not answer, or only with errors of its own."""


class ForbiddenError(ClusterError):
    """The API server does not allow it."""


class RefusedError(ClusterError):
    """The API server refuses for a reason of its own, or of an admission webhook."""


class RecordError(ClusterError):
    """What is remembered of a node cannot be read."""


class ConflictError(ClusterError):
    """Somebody else changed the node meanwhile: observe it and decide again."""


class HeldError(ClusterError):
    """Another engine holds the lease."""


class LeaseLostError(ClusterError):
    """The lease was lost: nothing more may be changed."""


class RuntimeClassError(ClusterError):
    """A RuntimeClass of that name has another handler, which cannot be changed."""


class JournalError(ClusterError):
    """The journal cannot be read or written."""
