"""Says in which zone each node is, which zones have room for another one out of service, and whose turn it is. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.declaration.spec.model import Order
from provision.declaration.spec.values.shares import count_of
from provision.rollout.decision.drain import has_to_leave

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from provision.declaration.spec.model import Rollout
    from provision.rollout.decision.policy import ZonePolicy
    from provision.rollout.decision.snapshot import NodeState


class ZoneLimits:
    """One decision's count of the nodes of each zone that are out of service, for whatever reason.

    ``waiting`` are those that want to begin, in their order, ``last`` is the last wave of which one may.
    """

    def __init__(
        self,
        policy: ZonePolicy,
        nodes: Iterable[NodeState],
        out: Collection[str],
        waiting: Sequence[NodeState],
        last: int,
    ) -> None:
        totals: dict[str, int] = {}
        self._out: dict[str, int] = {}
        self._flying: dict[str, str] = {}
        for node in nodes:
            zone = node.zone
            totals[zone] = totals.get(zone, 0) + 1
            if node.view.name in out:
                self._out[zone] = self._out.get(zone, 0) + 1
            if policy.one_at_a_time and node.is_in_flight and zone not in self._flying:
                self._flying[zone] = node.name
        self._totals = totals
        limit = policy.max_unavailable
        self._limits = {} if limit is None else {zone: count_of(limit, total) for zone, total in totals.items()}
        self._turn = self._whose_turn(waiting, last) if policy.one_at_a_time else None

    def take(self, node: NodeState, *, is_out_already: bool) -> None:
        """Count a node that begins now."""
        if not is_out_already:
            self._out[node.zone] = self._out.get(node.zone, 0) + 1
        self._flying.setdefault(node.zone, node.name)

    def why_not_now(self, node: NodeState) -> str:
        """Return why the zone of a node has to wait for another zone."""
        turn = self._turn
        if turn is None or node.zone in self._flying or (node.zone == turn and not self._flying):
            return ""
        zone, name = next(iter(self._flying.items()), (turn, ""))
        return f"waits for zone {zone}: {name}" if name else f"waits for zone {zone}"

    def why_full(self, node: NodeState, count: int = 1) -> str:
        """Return why no further node of its zone, or no ``count`` of them, may be taken out of service."""
        zone = node.zone
        limit, out = self._limits.get(zone), self._out.get(zone, 0)
        if limit is None or out + count <= limit:
            return ""
        return f"{limit} of {self._totals[zone]} nodes of zone {zone} may be unavailable, and {out} are"

    @staticmethod
    def _whose_turn(waiting: Sequence[NodeState], last: int) -> str | None:
        """Return the zone of the first node that could begin; a zone does not wait for one that cannot."""
        for node in waiting:
            if node.view.is_ready and not node.kept_out and (node.wave or 0) <= last:
                return node.zone
        return None


NOWHERE = "no zone"  # nodes without the label or the groups are a zone too, so that none escapes a limit


def place_of(node_label: str | None, declared: Sequence[str], labels: Mapping[str, str], groups: Sequence[str]) -> str:
    """Return where a node is: the value of a label, else the first of the ``declared`` groups that it is in."""
    if node_label is not None:
        return labels.get(node_label, "")
    return next((group for group in declared if group in groups), "")


def with_places(states: Sequence[NodeState], rollout: Rollout, groups: Mapping[str, Sequence[str]]) -> list[NodeState]:
    """Return the nodes, each with its zone and its rank; ``groups`` are the inventory's, by node."""
    zones = rollout.zones
    if zones is None:
        ranks = (
            [len(has_to_leave(state)) for state in states] if rollout.order is Order.EMPTY_FIRST else [0] * len(states)
        )
        return [replace(state, rank=rank) if rank else state for state, rank in zip(states, ranks, strict=True)]
    found = [
        place_of(zones.node_label, zones.groups, state.view.labels, groups.get(state.name, ())) or NOWHERE
        for state in states
    ]
    turns = {zone: turn for turn, zone in enumerate(dict.fromkeys(found))}
    counted = dict.fromkeys(turns, 0)
    placed = []
    for state, zone in zip(states, found, strict=True):
        rank = _rank(rollout.order, state, counted[zone] * len(turns) + turns[zone])
        counted[zone] += 1
        placed.append(replace(state, zone=zone, rank=rank, zone_turn=turns[zone] if zones.one_at_a_time else 0))
    return placed


def _rank(order: Order, state: NodeState, in_turn: int) -> int:
    if order is Order.SPREAD:
        return in_turn
    return len(has_to_leave(state)) if order is Order.EMPTY_FIRST else 0
