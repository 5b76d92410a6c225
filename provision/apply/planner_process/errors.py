"""What can go wrong around the planner; what is wrong with a node itself is a problem of its plan.

GrapnelError
└── PlanningError      1   one node could not be planned: a limit, or a bug
    └── LimitError     1   it took too much time or memory
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class PlanningError(GrapnelError):
    """One node could not be planned."""


class LimitError(PlanningError):
    """Planning one node took too much time or memory."""
