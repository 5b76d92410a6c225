"""What can go wrong with a whole apply; what goes wrong on one node is a value, ``NodeResult``.

GrapnelError
├── RunError        1   Ansible could not run at all: playbook, collection or inventory
├── LockedError     1   another apply of one of these machines is running
└── CanceledError   130 interrupted before anything was changed
"""

from __future__ import annotations

from typing import ClassVar

from provision.base.errors import ExitCode, GrapnelError


class RunError(GrapnelError):
    """Ansible could not run at all."""


class LockedError(GrapnelError):
    """Another apply of one of these machines is running."""


class CanceledError(GrapnelError):
    """Interrupted before anything was changed."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERRUPTED


class PlanningError(GrapnelError):
    """One node could not be planned."""


class LimitError(PlanningError):
    """Planning one node took too much time or memory."""
