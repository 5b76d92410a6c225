"""Says which node is in which wave. Pure.

Known once, before a rollout begins, and the same after a process was killed: the nodes that are in it are those that
have to be changed, and those that were changed for it already, as their records tell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.rollout.decision.policy import count_of
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.rollout.decision.snapshot import NodeState
    from provision.spec.model import Wave


def with_waves(
    states: Sequence[NodeState], waves: Sequence[Wave], groups: Mapping[str, Sequence[str]]
) -> list[NodeState]:
    """Return the nodes, each with its wave; ``groups`` are the inventory's, by node.

    A wave by size takes nodes in the inventory's order, and none that cannot be changed now: a canary has to prove
    something. Those are in the last wave, unless they are named.
    """
    if not waves:
        return list(states)
    left = {state.name: state for state in _taking_part(states)}
    everyone = tuple(left.values())
    found: dict[str, int] = {}
    for index, wave in enumerate(waves[:-1]):
        names = _chosen(wave, tuple(left.values()), everyone, groups)
        found |= dict.fromkeys(names, index)
        for name in names:
            del left[name]
    found |= dict.fromkeys(left, len(waves) - 1)
    return [replace(state, wave=found.get(state.name)) for state in states]


def _taking_part(states: Sequence[NodeState]) -> list[NodeState]:
    """Return the nodes that a rollout is about: those to change, and those that were changed to the same version.

    A change that keeps the version is remembered by no record: it begins with a canary in each run.
    """
    pending = [state for state in states if state.wants_to_begin or state.is_in_flight]
    is_remembered = all(_origin(state) != state.target for state in pending)
    return [
        state
        for state in states
        if state.wants_to_begin or state.is_in_flight or state.obstacle or (is_remembered and _was_changed(state))
    ]


def _origin(state: NodeState) -> str:
    record = state.record
    return state.origin if record is None or record.phase.is_in_service else record.origin


def _was_changed(state: NodeState) -> bool:
    record = state.record
    is_done = record is not None and record.phase is Phase.DONE
    return record is not None and is_done and record.target == state.target != record.origin


def _chosen(
    wave: Wave, left: Sequence[NodeState], everyone: Sequence[NodeState], groups: Mapping[str, Sequence[str]]
) -> list[str]:
    chosen = [state for state in left if _is_selected(wave, state, groups)]
    if wave.size is None:
        return [state.name for state in chosen]
    able = [state for state in everyone if _is_selected(wave, state, groups) and _is_able(state)]
    return [state.name for state in chosen if _is_able(state)][: count_of(wave.size, len(able))]


def _is_able(state: NodeState) -> bool:
    return not state.obstacle or state.is_in_flight


def _is_selected(wave: Wave, state: NodeState, groups: Mapping[str, Sequence[str]]) -> bool:
    if not wave.groups and not wave.hosts:
        return True
    return state.name in wave.hosts or any(group in wave.groups for group in groups.get(state.name, ()))
