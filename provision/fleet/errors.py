"""What can go wrong about the machines.

GrapnelError
├── FactsError    1   a node's facts are not what the contract says
└── AnswerError   1   a node's daemon answers something else than was asked
"""

from __future__ import annotations

from provision.errors import GrapnelError


class FactsError(GrapnelError):
    """A node's facts are not what the contract says."""


class AnswerError(GrapnelError):
    """A node's daemon answers something else than was asked."""
