"""Which of the free devices a container should get, and why: the kubelet's question and its answer. Pure.

The kubelet's topology manager has filtered by NUMA node before it asks; its list may be a moment older than ours.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from plugin.base.errors import InvalidRequest
from plugin.devices.allocation.preference.division import Question, group_score
from plugin.devices.allocation.preference.search import Limits, divide
from plugin.devices.allocation.preference.shares import choose_units, device_of
from plugin.devices.allocation.table import show_id
from plugin.devices.resources import Placement
from plugin.driver.topology.hierarchy import find_hierarchy, renumbered

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from plugin.devices.allocation.preference.division import Scores
    from plugin.devices.allocation.table import AllocationTable
    from plugin.driver.topology.hierarchy import Hierarchy
    from plugin.driver.topology.machine import Topology


class Rule(Enum):
    """Why just these devices."""

    NO_CHOICE = "there was nothing to choose"
    LEAST_LINKED = "the others lose least without it, so that linked groups stay whole"
    REQUIRED = "the best way to divide the free devices, and its group with the required ones"
    BEST_GROUP = "the best way to divide the free devices, and the best of its groups"
    DISTRIBUTED = "shares are spread: the devices that the fewest have"
    PACKED = "shares are packed: the devices that the most have and that have room"
    ONE_DEVICE = "units of one GPU: the one with the least free that has enough"
    SCATTERED = "no GPU has enough units free"
    NEAR = "on the NUMA node of the GPU that was given away just before"
    FIRST = "each is as good as another: the first ones"


@dataclass(frozen=True)
class Candidate:
    """Devices that could be given together. A single device's score is that of its pairs with all the others."""

    devices: tuple[str, ...]
    score: int


@dataclass(frozen=True)
class Preference:
    """What is preferred, and how it was found.

    `candidates` are the single devices, or the groups of the division; the chosen one is the first. `considered` is
    how many were looked at on the way. With `cut_off` the search ended early: a better division may exist.
    """

    chosen: tuple[str, ...]
    rule: Rule
    candidates: tuple[Candidate, ...] = ()
    considered: int = 0
    cut_off: str = ""

    def describe(self) -> str:
        """Return the reason in one line."""
        scores = f"; score {self.candidates[0].score}, {self.considered} looked at" if self.candidates else ""
        bounded = f"; cut off ({self.cut_off}), there may be a better one" if self.cut_off else ""
        return f"{self.rule.value}{scores}{bounded}"


DEFAULT_LIMITS = Limits()
_SHARE_RULES = {
    Placement.DISTRIBUTED: Rule.DISTRIBUTED,
    Placement.PACKED: Rule.PACKED,
    Placement.ONE_DEVICE: Rule.ONE_DEVICE,
}


def prefer(
    table: AllocationTable,
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    limits: Limits = DEFAULT_LIMITS,
    *,
    near: Container[str] = (),
) -> Preference:
    """Return `size` devices of the available ones, the same ones for the same question in any order.

    What must be included comes first, then the order of the table. A device that the table does not have, or that is
    not healthy, comes last: one GPU that has gone must not fail every pod on the node. `near` are the units to prefer
    where the placement is by that.
    """
    free, required = set(available), set(must_include)
    _check(free, required, size, must_include)
    rank = {device_id: position for position, device_id in enumerate(table.entries)}

    def order(device_id: str) -> tuple[int, str]:
        return rank.get(device_id, len(rank)), device_id

    good = {one for one in free if one in rank and not table.entries[one].unhealthy} | required
    if len(good) < size:
        good.update(sorted(free - good, key=order)[: size - len(good)])
    candidates = sorted(good, key=order)
    if size in {len(required), len(candidates)} or size == 0:
        chosen = required if size == len(required) else good
        return Preference(tuple(sorted(chosen, key=lambda one: (one not in required, order(one)))), Rule.NO_CHOICE)
    if table.placement is Placement.NEAR:
        return _nearest(candidates, required, size, near)
    if table.placement is not Placement.LINKED:
        return _shares(table, candidates, sorted(required, key=order), size)
    scores, hierarchy = _among(table.topology, candidates)
    if size == 1:
        return _least_linked(candidates, scores)
    wanted = tuple(position for position, one in enumerate(candidates) if one in required)
    return _best_group(candidates, Question(scores, size, wanted), hierarchy, limits)


def _nearest(candidates: Sequence[str], required: set[str], size: int, near: Container[str]) -> Preference:
    """Return the required units, then those that are near, then the others, each in the order of the table."""
    ordered = sorted(candidates, key=lambda one: (one not in required, one not in near))
    is_near = any(one in near for one in ordered[len(required) : size])
    return Preference(tuple(ordered[:size]), Rule.NEAR if is_near else Rule.FIRST, considered=len(candidates))


def _shares(table: AllocationTable, candidates: Sequence[str], required: Sequence[str], size: int) -> Preference:
    """Return units by their device. A candidate is a device, named by one of its units; its score is what is free."""
    chosen = choose_units(table.entries, candidates, required, size, table.placement)
    free = Counter(device_of(table.entries, one) for one in candidates)
    named: dict[str, str] = {}
    for one in (*chosen, *candidates):
        named.setdefault(device_of(table.entries, one), one)
    rule = _SHARE_RULES[table.placement]
    if table.placement is Placement.ONE_DEVICE and len({device_of(table.entries, one) for one in chosen}) > 1:
        rule = Rule.SCATTERED
    told = tuple(Candidate((one,), free[device]) for device, one in named.items())
    return Preference(chosen, rule, told, considered=len(free))


def _check(free: set[str], required: set[str], size: int, must_include: Sequence[str]) -> None:
    for device_id in must_include:
        if device_id not in free:
            raise InvalidRequest(f"device {show_id(device_id)} must be included but is not available")
    if not len(required) <= size <= len(free):
        raise InvalidRequest(
            f"cannot choose {size} devices from {len(free)} available ones with {len(required)} required"
        )


def _among(topology: Topology, candidates: Sequence[str]) -> tuple[Scores, Hierarchy | None]:
    """Return scores and tree of these devices alone; one that the topology does not know has no links."""
    if topology.ids == tuple(candidates):
        return topology.scores, topology.hierarchy
    positions = [topology.positions.get(one) for one in candidates]
    scores = [[0 if a is None or b is None else topology.scores[a][b] for b in positions] for a in positions]
    numbers = {position: number for number, position in enumerate(positions) if position is not None}
    if topology.hierarchy is None or len(numbers) < len(candidates):
        return scores, find_hierarchy(scores)
    return scores, renumbered(topology.hierarchy, numbers)


def _least_linked(candidates: Sequence[str], scores: Scores) -> Preference:
    links = [sum(row) for row in scores]
    ordered = sorted(range(len(candidates)), key=links.__getitem__)
    return Preference(
        chosen=(candidates[ordered[0]],),
        rule=Rule.LEAST_LINKED,
        candidates=tuple(Candidate((candidates[one],), links[one]) for one in ordered),
        considered=len(candidates),
    )


def _best_group(
    candidates: Sequence[str], question: Question, hierarchy: Hierarchy | None, limits: Limits
) -> Preference:
    found = divide(question, hierarchy, limits)
    first = sorted(found.division.groups[0], key=lambda one: (one not in question.required, one))
    return Preference(
        chosen=tuple(candidates[one] for one in first),
        rule=Rule.REQUIRED if question.required else Rule.BEST_GROUP,
        candidates=tuple(
            Candidate(tuple(candidates[one] for one in group), group_score(question.scores, group))
            for group in found.division.groups
        ),
        considered=found.steps,
        cut_off=found.cut_off,
    )
