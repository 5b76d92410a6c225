"""Estimates how long an upgrade still takes, from how long its phases took on nodes before. Pure.

Nothing is estimated from anything but measured phases, and only the median counts: one node, which may write its own
record, moves it little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from provision.rollout.interface.standing import WaveForecast
from provision.rollout.model import ChangeKind, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Record

ORDER: Final = tuple(phase for phase in Phase if not phase.is_over and phase is not Phase.ROLLBACK)
_IN_PLACE: Final = (Phase.SWAP, Phase.VERIFY)
_OPTIONAL: Final = frozenset({Phase.JOBS})  # not every node waits for jobs


@dataclass(frozen=True, slots=True)
class Measures:
    """The median of each phase in seconds, as far as ``nodes`` nodes have been measured.

    ``is_in_place``: of changes during which nodes serve, which have fewer phases.
    """

    medians: Mapping[Phase, float] = field(default_factory=dict)
    nodes: int = 0
    is_in_place: bool = False

    def left_s(self, record: Record, now: datetime) -> float | None:
        """Return what a node in flight still needs; None where one of its phases was never measured, or leads back."""
        if record.is_returning:
            return None
        order = _IN_PLACE if record.kind.is_in_place else ORDER
        rest = [phase for phase in order[order.index(record.phase) :] if phase is record.phase or self._counts(phase)]
        if any(phase not in self.medians for phase in rest):
            return None
        elapsed_s = max(0.0, (now - record.since).total_seconds())
        return max(0.0, self.medians[rest[0]] - elapsed_s) + sum(self.medians[phase] for phase in rest[1:])

    def _counts(self, phase: Phase) -> bool:
        """Tell whether a phase is one of every node's, as far as nodes were measured."""
        return phase not in _OPTIONAL or phase in self.medians

    @property
    def whole_s(self) -> float | None:
        """What a node needs from its first phase on."""
        needed = set(_IN_PLACE) if self.is_in_place else set(ORDER) - _OPTIONAL
        return sum(self.medians.values()) if set(self.medians) >= needed else None


def measure(records: Iterable[Record], standing: Standing | None) -> Measures:
    """Return the medians of this rollout: of records of the kind and target of a node that was in flight in it."""
    known = list(records)
    wanted = {(one.kind, one.target) for one in known if _is_of_this_run(one, standing)}
    is_in_place = bool(wanted) and all(kind.is_in_place for kind, _target in wanted)
    return replace(measures_of(one for one in known if (one.kind, one.target) in wanted), is_in_place=is_in_place)


def foreseeing(records: Iterable[Record], targets: Collection[str], *, is_in_place: bool = False) -> Measures:
    """Return the medians for an upgrade that is still to come: of nodes that have these targets already.

    Where that does not measure each phase, of all upgrades that nodes remember. ``is_in_place``: for another interface.
    """
    records = list(records)
    if is_in_place:
        return replace(measures_of(one for one in records if one.kind.is_in_place), is_in_place=True)
    known = [one for one in records if one.kind is ChangeKind.DRIVER]
    own = measures_of(one for one in known if one.target in targets)
    return measures_of(known) if own.whole_s is None else own


def measures_of(records: Iterable[Record]) -> Measures:
    """Return the medians of what these records tell."""
    found: dict[Phase, list[float]] = {}
    measured = [one for one in records if one.took]
    for record in measured:
        for phase, seconds in record.took.items():
            found.setdefault(phase, []).append(seconds)
    return Measures({phase: median(each) for phase, each in found.items()}, len(measured))


def _is_of_this_run(record: Record, standing: Standing | None) -> bool:
    return not record.phase.is_in_service or (standing is not None and record.since >= standing.began)


def left_of_fleet(measures: Measures, flying: Iterable[float | None], waiting: int, standing: Standing) -> float | None:
    """Return the seconds until the last node is done: those in flight, then the others, as many at once as may be.

    None where a phase of theirs was never measured, the run has stopped, or will wait for a person.
    """
    needs = list(flying)
    if (
        standing.stop
        or standing.is_held
        or (waiting and measures.whole_s is None)
        or any(each is None for each in needs)
    ):
        return None
    soonest = max((each for each in needs if each is not None), default=0.0)
    rounds = math.ceil(waiting / max(1, standing.at_once))
    pauses_s = rounds * standing.soak.total_seconds() + (standing.wave_soak.total_seconds() if waiting else 0.0)
    return soonest + rounds * (measures.whole_s or 0.0) + pauses_s if needs or waiting else None


def reckon(nodes: Sequence[NodeState], policy: Policy, node_s: float) -> tuple[WaveForecast, ...]:
    """Return the waves of a roll-out of ``nodes`` whose rounds follow one another, each as long as a node needs."""
    at_once = max(1, min(policy.max_parallel, policy.max_unavailable))
    soak_s, now_s = policy.soak.total_seconds(), 0.0
    found = []
    groups = [
        (wave.title, sum(node.wave == index for node in nodes), wave.soak.total_seconds())
        for index, wave in enumerate(policy.waves)
    ] or [("all nodes", len(nodes), 0.0)]
    for title, members, wave_soak_s in groups:
        if not members:
            continue
        rounds = math.ceil(members / at_once)
        ends_s = now_s + rounds * node_s + (rounds - 1) * soak_s
        found.append(WaveForecast(title=title, nodes=members, begins_s=now_s, ends_s=ends_s, soak_s=wave_soak_s))
        now_s = ends_s + max(soak_s, wave_soak_s)
    return tuple(found)
