"""Counts what probes and metrics tell of the controller. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.controller.stacks.derive import Observed
    from provision.rollout.interface.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCounts:
    """How one stack stands: its ``state``, its nodes by how they stand, and its rollout, None where none goes on.

    ``claimed`` nodes belong to another stack as well, ``drifted`` have found so by themselves, ``joining`` have the
    start-up taint, and on ``hosting``, one at most, runs this controller. ``done`` and ``failures`` count, since this
    process leads, how often a node was brought to its declaration, and how often a try failed.
    """

    state: str = ""
    nodes: Mapping[str, int] = field(default_factory=dict)
    claimed: int = 0
    drifted: int = 0
    joining: int = 0
    hosting: int = 0
    done: int = 0
    failures: int = 0
    rollout: Standing | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What probes and metrics tell: whether this process leads, and how each stack stands.

    ``turn`` is the last look at everything, in seconds since 1970.
    """

    is_leader: bool = False
    stacks: Mapping[str, StackCounts] = field(default_factory=dict)
    rounds: int = 0
    turns: int = 0
    turn: float = 0.0


def nodes_by_stand(observed: Observed) -> dict[str, int]:
    """Return how many nodes stand how."""
    found: dict[str, int] = {}
    for stand in observed.nodes.values():
        found[stand.how.value] = found.get(stand.how.value, 0) + 1
    return found
