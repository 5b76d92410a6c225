"""What can go wrong where node state lives, beyond what the rollout reacts to (``provision.rollout.errors``).

ClusterError
├── KubeconfigError    1   no usable kubeconfig: file, context, credentials
├── ForbiddenError     1   the API server does not allow it: names the permission
├── RefusedError       1   the API server refuses for another reason: its own words
├── RecordError        1   the record of a node's upgrade cannot be read
├── SchedulerError     1   a command of a scheduler failed: names it, and what it said
└── StateFileError     1   the state file cannot be read or written
"""

from __future__ import annotations

from provision.rollout.errors import ClusterError


class KubeconfigError(ClusterError):
    """There is no usable kubeconfig."""


class ForbiddenError(ClusterError):
    """The API server does not allow it."""


class RefusedError(ClusterError):
    """The API server refuses for a reason of its own, or of an admission webhook."""


class RecordError(ClusterError):
    """The record of a node's upgrade cannot be read."""


class SchedulerError(ClusterError):
    """A command of a scheduler failed."""


class StateFileError(ClusterError):
    """The state file cannot be read or written."""
