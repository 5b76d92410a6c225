"""Says in which zone each node is, and in which order nodes of the same wave and priority begin. Pure.

Known once, before a rollout begins: a label that changes half-way moves no node to where another limit applies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.declaration.spec.model import Order
from provision.rollout.decision.leaving import has_to_leave

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.declaration.spec.model import Rollout
    from provision.rollout.decision.snapshot import NodeState

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
