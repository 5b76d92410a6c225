"""Counts the fleet once for a decision: who is in flight, who wants to begin, who soaks, who is out of service. Pure.

One look at each node and no more: a fleet of thousands is decided about every few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from provision.rollout.decision.snapshot import NodeState, Snapshot
    from provision.rollout.model import Record

_RANK: Final = attrgetter("rank")
_ZONE_TURN: Final = attrgetter("zone_turn")
_PRIORITY: Final = attrgetter("view.priority")


@dataclass(slots=True)
class Census:
    """The nodes by what they mean for those that wait, each list in the inventory's order.

    ``phases`` are those of nodes in flight. ``soaking`` are nodes that were changed so short a time ago that they
    have to prove themselves, each with the moment until which. ``failed`` are those that failed in this process and
    are out of service, ``returned`` those that are back in service then, ``unable`` those that failed before and cannot
    be tried again.
    """

    total: int
    nodes: Sequence[NodeState] = ()
    flying: list[NodeState] = field(default_factory=list)
    phases: dict[str, Phase] = field(default_factory=dict)
    waiting: list[NodeState] = field(default_factory=list)
    failed: list[NodeState] = field(default_factory=list)
    returned: list[NodeState] = field(default_factory=list)
    unable: list[NodeState] = field(default_factory=list)
    soaking: list[tuple[NodeState, datetime]] = field(default_factory=list)
    cordoned: set[str] = field(default_factory=set)
    not_ready: set[str] = field(default_factory=set)


def take_census(snapshot: Snapshot, soak: timedelta, now: datetime) -> Census:
    """Return the count of a fleet in which a changed node has to stay healthy for ``soak``."""
    census = Census(len(snapshot.nodes), snapshot.nodes)
    for node in snapshot.nodes:
        view = node.view
        if view.is_cordoned:
            census.cordoned.add(view.name)
        if not view.is_ready:
            census.not_ready.add(view.name)
        if node.wants_to_begin:
            census.waiting.append(node)
        if view.record is not None:
            _count(census, node, view.record, now, snapshot.began, soak)
    census.waiting = _sort(census.waiting)
    return census


def _count(  # noqa: PLR0913, PLR0917 - called for each node that was ever changed: names cost time
    census: Census, node: NodeState, record: Record, now: datetime, began: datetime, soak: timedelta
) -> None:
    phase = record.phase
    if phase is Phase.DONE:
        until = record.believed_since(now, began) + soak
        if now < until and record.target == node.target:
            census.soaking.append((node, until))
    elif phase is Phase.RETURNED:
        if node.has_failed:
            census.returned.append(node)
    elif node.has_failed:
        census.failed.append(node)
    elif phase is not Phase.FAILED:
        census.flying.append(node)
        census.phases[node.view.name] = phase
    elif node.obstacle:
        census.unable.append(node)


def in_order(nodes: Sequence[NodeState]) -> list[NodeState]:
    """Return the nodes that are still to begin: those that failed before, then the others wave by wave, as they stand.

    A node that failed is out of service already: no wave is better off for its waiting. Within a wave, those of a
    higher priority come first; a label of the node says so, which may bring it forward within its wave and no further.
    """
    return _sort([node for node in nodes if node.wants_to_begin])


def _sort(waiting: list[NodeState]) -> list[NodeState]:
    again = [node for node in waiting if node.has_failed_before]
    fresh = [node for node in waiting if not node.has_failed_before] if again else waiting
    if any(map(_RANK, fresh)):  # sorts are stable: what counts most comes last
        fresh = sorted(fresh, key=_RANK)
    if any(map(_PRIORITY, fresh)):
        fresh = sorted(fresh, key=_PRIORITY, reverse=True)
    if any(map(_ZONE_TURN, fresh)):
        fresh = sorted(fresh, key=_ZONE_TURN)
    if fresh and fresh[0].wave is not None:
        fresh = sorted(fresh, key=_wave)
    return again + fresh if again else fresh


def _wave(node: NodeState) -> int:
    return node.wave or 0
