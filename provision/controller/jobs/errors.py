"""What can keep a Job from running on its node."""

from __future__ import annotations

from provision.rollout.errors import ClusterError


class JobError(ClusterError):
    """A Job did not start, or did not come to its end; the message says why, in the words of who refused."""
