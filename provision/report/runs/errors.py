"""What can go wrong with past runs.

GrapnelError
└── RunsError         there is no such run, or it cannot be read
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class RunsError(GrapnelError):
    """There is no such run, or it cannot be read."""
