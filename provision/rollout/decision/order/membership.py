"""Says which node is in which wave, and where its place is for those who watch. Pure.

Known once, before a rollout begins, and the same after a process was killed: the nodes that are in it are those that
have to be changed, and those that were changed for it already, as their records tell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.values.shares import count_of
from provision.rollout.interface.standing import Members
from provision.rollout.model import ChangeKind, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from provision.declaration.spec.model import Wave
    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import NodeState

_REMEMBERED: Final = (ChangeKind.REBOOT, ChangeKind.INTERFACE)  # by their records, whatever driver there is


def with_waves(
    states: Sequence[NodeState], waves: Sequence[Wave], groups: Mapping[str, Sequence[str]]
) -> list[NodeState]:
    """Return the nodes, each with its wave; ``groups`` are the inventory's, by node.

    A wave by size takes nodes in the inventory's order, and none that cannot be changed now: a canary has to prove
    something. Those are in the last wave, unless they are named. No wave parts a domain: one that selects a node takes
    all of its domain, and one by size takes domains as long as they fit, but one at least.
    """
    if not waves:
        return list(states)
    left = {state.name: state for state in _taking_part(states)}
    everyone = tuple(left.values())
    found: dict[str, int] = {}
    for index, wave in enumerate(waves[:-1]):
        names = _whole(_chosen(wave, tuple(left.values()), everyone, groups), left)
        found |= dict.fromkeys(names, index)
        for name in names:
            del left[name]
    found |= dict.fromkeys(left, len(waves) - 1)
    return [replace(state, wave=found.get(state.name)) for state in states]


def _taking_part(states: Sequence[NodeState]) -> list[NodeState]:
    """Return the nodes that a rollout is about: those to change, and those that were changed to the same version.

    A change that keeps the version is remembered by no record: it begins with a canary in each run. A reboot is, by the
    boot that it ended, and another interface by its name.
    """
    pending = [state for state in states if state.wants_to_begin or state.is_in_flight]
    is_remembered = all(state.kind in _REMEMBERED or _origin(state) != state.target for state in pending)
    return [
        state
        for state in states
        if state.wants_to_begin or state.is_in_flight or state.obstacle or (is_remembered and _was_changed(state))
    ]


def _origin(state: NodeState) -> str:
    record = state.record
    return state.origin if record is None or record.phase.is_in_service else record.origin


def _was_changed(state: NodeState) -> bool:
    if state.kind in _REMEMBERED:
        return state.is_changed
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
    return _fitting([state for state in chosen if _is_able(state)], count_of(wave.size, len(able)))


def _fitting(nodes: Sequence[NodeState], size: int) -> list[str]:
    """Return the first nodes that a wave of a size takes, in whole domains."""
    units: dict[str, list[str]] = {}
    for state in nodes:
        units.setdefault(f"domain {state.domain}" if state.domain else f"node {state.name}", []).append(state.name)
    found: list[str] = []
    for names in units.values():
        if found and len(found) + len(names) > size:
            break
        found += names
    return found


def _whole(names: Sequence[str], left: Mapping[str, NodeState]) -> list[str]:
    """Return nodes together with what is left of their domains."""
    domains = {left[name].domain for name in names} - {""}
    if not domains:
        return list(names)
    return list(dict.fromkeys((*names, *(name for name, state in left.items() if state.domain in domains))))


def _is_able(state: NodeState) -> bool:
    return not state.obstacle or state.is_in_flight


def _is_selected(wave: Wave, state: NodeState, groups: Mapping[str, Sequence[str]]) -> bool:
    if not wave.groups and not wave.hosts:
        return True
    return state.name in wave.hosts or any(group in wave.groups for group in groups.get(state.name, ()))


def domains_of(nodes: Iterable[NodeState]) -> tuple[Members, ...]:
    """Return the domains with their nodes, in the order in which they come up."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.domain:
            found.setdefault(node.domain, []).append(node.name)
    return tuple(Members(title, tuple(names)) for title, names in found.items())


def waves_of(nodes: Iterable[NodeState], policy: Policy) -> tuple[Members, ...]:
    """Return the waves with their nodes, in their order; those without any are left out."""
    found: dict[int, list[str]] = {}
    for node in nodes:
        if node.wave is not None:
            found.setdefault(node.wave, []).append(node.name)
    return tuple(Members(policy.waves[index].title, tuple(found[index])) for index in sorted(found))
