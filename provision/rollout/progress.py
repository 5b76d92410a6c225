"""Defines the progress events of a rollout: those of an apply, and those of the phases of each node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.apply.model import Progress

if TYPE_CHECKING:
    from provision.rollout.model import Phase


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """A node's upgrade goes on to a phase; ``reason`` is what went wrong before it, if something did."""

    node: str
    phase: Phase
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeWaits:
    """A node does not move, and why; an empty ``reason`` says that it moves again.

    ``is_out``: it is out of service already.
    """

    node: str
    reason: str
    is_out: bool = False


RolloutProgress = Progress | PhaseEntered | NodeWaits
RolloutObserver = Callable[[RolloutProgress], None]
