"""Defines what the rollout knows of gates, such as alerts, which ``provision.rollout.gates`` asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """A gate at one moment.

    ``reason`` is why it is closed. ``is_answered``: whoever keeps it says so, and has not merely stopped answering.
    ``open_since`` is when it was last opened, None where it was never seen closed. ``holds_nodes``: no node begins
    while it is closed; else no wave does.
    """

    name: str
    is_open: bool
    reason: str = ""
    is_answered: bool = True
    open_since: datetime | None = None
    holds_nodes: bool = True

    @property
    def as_reason(self) -> str:
        """Why a node waits for it."""
        return f"gate {self.name} is closed: {self.reason}"


class Gates(Protocol):
    """The gates of a rollout."""

    def states(self) -> tuple[GateState, ...]:
        """Return what is known of each now, at once, without asking."""


class NoGates:
    """A rollout without gates."""

    def states(self) -> tuple[GateState, ...]:
        """Return none."""
        return ()


NO_GATES: Final[Gates] = NoGates()
