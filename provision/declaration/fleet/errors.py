"""What can go wrong with the inventory and with what nodes answer.

GrapnelError
├── InventoryError   1   the inventory cannot be read, or names no machine
├── FactsError       1   a node's facts do not follow the contract
└── AnswerError      1   the answer of a node's daemon cannot be read
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class InventoryError(GrapnelError):
    """The inventory cannot be read, or names no machine."""


class FactsError(GrapnelError):
    """A node's facts do not follow the contract."""


class AnswerError(GrapnelError):
    """The answer of a node's daemon cannot be read."""
