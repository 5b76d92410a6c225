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

_TURN: Final = attrgetter("turn")


@dataclass(slots=True)
class Census:
    """The nodes by what they mean for those that wait, each list in the inventory's order.

    ``phases`` are those of nodes in flight. ``soaking`` are nodes that were changed so short a time ago that they
    have to prove themselves, each with the moment until which. ``failed`` are those that failed in this process and
    are out of service, ``returned`` those that are back in service then, ``unable`` those that failed before and cannot
    be tried again, ``replaced`` those that are other machines by now. ``waves`` are those that have a node.
    """

    total: int
    nodes: Sequence[NodeState] = ()
    flying: list[NodeState] = field(default_factory=list)
    phases: dict[str, Phase] = field(default_factory=dict)
    waiting: list[NodeState] = field(default_factory=list)
    failed: list[NodeState] = field(default_factory=list)
    returned: list[NodeState] = field(default_factory=list)
    unable: list[NodeState] = field(default_factory=list)
    replaced: list[NodeState] = field(default_factory=list)
    soaking: list[tuple[NodeState, datetime]] = field(default_factory=list)
    cordoned: set[str] = field(default_factory=set)
    not_ready: set[str] = field(default_factory=set)
    waves: set[int] = field(default_factory=set)


def take_census(snapshot: Snapshot, soak: timedelta, now: datetime) -> Census:
    """Return the count of a fleet in which a changed node has to stay healthy for ``soak``."""
    census = Census(len(snapshot.nodes), snapshot.nodes)
    for node in snapshot.nodes:
        if not node.is_serving:
            _count_out(census, node)
        if node.wants_to_begin:
            census.waiting.append(node)
        if node.is_in_flight:
            census.flying.append(node)
        elif node.is_changed:
            if soak:  # else thousands that are done would be asked for nothing
                _count_soaking(census, node, soak, now, snapshot.began)
        elif node.record is not None:
            _count_failed(census, node, node.record)
        elif node.is_replaced:
            census.replaced.append(node)
    census.phases = {node.name: node.record.phase for node in census.flying if node.record is not None}
    census.waiting = _sort(census.waiting)
    census.waves = {wave for wave in {node.wave for node in snapshot.nodes} if wave is not None}
    return census


def _count_out(census: Census, node: NodeState) -> None:
    if node.view.is_cordoned:
        census.cordoned.add(node.name)
    if not node.view.is_ready:
        census.not_ready.add(node.name)


def _count_soaking(census: Census, node: NodeState, soak: timedelta, now: datetime, began: datetime) -> None:
    if node.record is not None and now < (until := node.record.believed_since(now, began) + soak):
        census.soaking.append((node, until))


def _count_failed(census: Census, node: NodeState, record: Record) -> None:
    if node.has_failed:
        if record.phase is Phase.RETURNED:
            census.returned.append(node)
        elif record.phase is not Phase.DONE:
            census.failed.append(node)
    elif record.phase is Phase.FAILED and node.obstacle:
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
    fresh = sorted(fresh, key=_TURN)
    return again + fresh if again else fresh
