"""Exact search over the shapes of a tree of GPUs. Pure.

Two sets of free GPUs whose trees have the same shape are worth the same, whichever GPUs they are: sixteen GPUs in pairs
below eight switches of two NUMA nodes have 65,536 sets, and 120 shapes. So shapes are searched, and only the way that
was found is walked with real GPUs. Shapes are numbers: 0 is nothing, 1 a single GPU, the others branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, NamedTuple

from plugin.devices.allocation.preference.division import arranged

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from plugin.devices.allocation.preference.division import Division, Effort, Question
    from plugin.driver.topology.hierarchy import Hierarchy

    # What is left, a shape → the best score of what was taken, and the pick.
    _Takings = dict[int, tuple[int, "_Pick | None"]]
    # GPUs taken so far, shapes that are left of the sub-branches so far → the best score, own GPUs taken, picks.
    _Partial = dict[tuple[int, tuple[int, ...]], tuple[int, int, tuple["_Pick | None", ...]]]

_NOTHING, _GPU = 0, 1
_NO_GROUP = 1 << 60  # "the worst group" of no groups


class _Shape(NamedTuple):
    """A branch without names: pairs across what hangs on it score `score`. Sub-branches are shapes, sorted."""

    score: int
    gpus: int
    required: int
    branches: tuple[int, ...]


class _Pick(NamedTuple):
    """How many of a branch's own GPUs are taken, and what of its sub-branches (None: nothing)."""

    gpus: int
    branches: tuple[_Pick | None, ...]


@dataclass(frozen=True)
class _Branch:
    """A branch with names, ordered like its shape; among equal sub-branches the one with the lowest GPU is first."""

    shape: int
    score: int
    gpus: tuple[int, ...]
    required: tuple[int, ...]
    branches: tuple[_Branch, ...]

    @property
    def lowest(self) -> int:
        return min((*self.gpus, *self.required, *(branch.lowest for branch in self.branches)))


class _Best(NamedTuple):
    total: int
    worst: int
    pick: _Pick | None = None


def divide_by_branches(question: Question, hierarchy: Hierarchy, effort: Effort) -> Division:
    """Return the best division; raises CutOff when it takes too many steps."""
    return _BranchSearch(question, effort).run(hierarchy)


class _BranchSearch:
    def __init__(self, question: Question, effort: Effort) -> None:
        self._question = question
        self._size = question.size
        self._effort = effort
        self._shapes: list[_Shape] = [_Shape(0, 0, 0, ()), _Shape(0, 1, 0, ())]
        self._counts = [0, 1]
        self._numbers: dict[_Shape, int] = {}
        self._taken: dict[tuple[int, int], _Takings] = {}
        self._inside: dict[int, int] = {_NOTHING: 0, _GPU: 0}
        self._known: dict[int, _Best] = {}
        best_pair = max(max(row) for row in question.scores)
        self._group_at_most = best_pair * comb(question.size, 2)
        self._rest_at_most = best_pair * comb(question.remainder, 2)

    def run(self, hierarchy: Hierarchy) -> Division:
        branch = self._named(hierarchy, range(self._question.count))
        groups = []
        while branch is not None:
            best = self._best(branch.shape)
            if best.pick is None:
                break
            group: list[int] = []
            branch = self._without(branch, best.pick, group)
            groups.append(group)
        return arranged(self._question, groups, () if branch is None else _members(branch))

    # Shapes and names

    def _number(self, shape: _Shape) -> int:
        """Return the number of a shape; one without a fork is that of what hangs on it."""
        _, gpus, required, branches = shape
        if not branches and not required and gpus <= 1:
            return gpus
        if len(branches) == 1 and not gpus and not required:
            return branches[0]
        known = self._numbers.get(shape)
        if known is None:
            known = self._numbers[shape] = len(self._shapes)
            self._shapes.append(shape)
            self._counts.append(gpus + required + sum(self._counts[branch] for branch in branches))
        return known

    def _named(self, hierarchy: Hierarchy, free: Container[int]) -> _Branch | None:
        gpus = [gpu for gpu in hierarchy.gpus if gpu in free]
        branches = [found for branch in hierarchy.branches if (found := self._named(branch, free)) is not None]
        required = [gpu for gpu in gpus if gpu in self._question.required]
        return self._branch(hierarchy.score, [gpu for gpu in gpus if gpu not in required], required, branches)

    def _branch(
        self, score: int, gpus: Iterable[int], required: Iterable[int], branches: Iterable[_Branch]
    ) -> _Branch | None:
        """Return a branch in the order of its shape: single GPUs that a sub-branch has left are the branch's own."""
        own, wanted, forks = list(gpus), list(required), []
        for branch in branches:
            if branch.shape == _GPU:
                own.extend(branch.gpus)
            elif not branch.gpus and not branch.branches and len(branch.required) == 1:
                wanted.extend(branch.required)
            else:
                forks.append(branch)
        if not own and not wanted and not forks:
            return None
        if len(forks) == 1 and not own and not wanted:
            return forks[0]
        forks.sort(key=lambda branch: (branch.shape, branch.lowest))
        shape = _Shape(score, len(own), len(wanted), tuple(branch.shape for branch in forks))
        return _Branch(self._number(shape), score, tuple(sorted(own)), tuple(sorted(wanted)), tuple(forks))

    def _without(self, branch: _Branch, pick: _Pick, group: list[int]) -> _Branch | None:
        """Take what a pick says: into the group, out of the branch. All the required GPUs go with the first pick."""
        group.extend(branch.gpus[: pick.gpus])
        group.extend(branch.required)
        left = [
            (one if part is None else self._without(one, part, group))
            for one, part in zip(branch.branches, pick.branches, strict=False)
        ]
        remaining = [one for one in left if one is not None]
        return self._branch(branch.score, branch.gpus[pick.gpus :], (), remaining)

    # The search

    def _best(self, shape: int) -> _Best:
        """Return the best division of a shape, and what its next group takes."""
        known = self._known.get(shape)
        if known is not None:
            return known
        if self._counts[shape] < self._size:
            found = _Best(self._score(shape), _NO_GROUP)
        else:
            found = self._best_of_takings(shape)
        self._known[shape] = found
        return found

    def _best_of_takings(self, shape: int) -> _Best:
        """Try the best groups first, and stop where more groups as good as the best possible would not be enough."""
        found = _Best(-1, -1)
        groups = sorted(self._takings(shape, self._size).items(), key=lambda taking: -taking[1][0])
        # A group that must have some GPUs may be worse than those after it.
        top = self._group_at_most if self._has_required(shape) else groups[0][1][0]
        others_at_most = (self._counts[shape] // self._size - 1) * top + self._rest_at_most
        for left, (score, pick) in groups:
            if (score + others_at_most, score) <= found[:2]:
                break
            after = self._best(left)
            candidate = _Best(score + after.total, min(score, after.worst), pick)
            if candidate[:2] > found[:2]:
                found = candidate
        return found

    def _score(self, shape: int) -> int:
        """Return the score of all pairs of a shape."""
        if shape not in self._inside:
            score, gpus, required, branches = self._shapes[shape]
            parts = [1] * (gpus + required) + [self._counts[branch] for branch in branches]
            across = (sum(parts) ** 2 - sum(part**2 for part in parts)) // 2
            self._inside[shape] = score * across + sum(self._score(branch) for branch in branches)
        return self._inside[shape]

    def _takings(self, shape: int, count: int) -> _Takings:
        """Return what can be left when `count` GPUs are taken."""
        known = self._taken.get((shape, count))
        if known is None:
            known = self._taken[shape, count] = self._find_takings(shape, count)
        return known

    def _find_takings(self, shape: int, count: int) -> _Takings:
        score, gpus, required, branches = self._shapes[shape]
        if count == 0 and not required:
            return {shape: (0, None)} if not self._has_required(shape) else {}
        below = sum(self._counts[branch] for branch in branches)
        partial: _Partial = {}
        for own in range(min(gpus, count - required), -1, -1):
            taken = own + required
            if count - taken <= below:
                partial[taken, ()] = (score * (taken * (taken - 1) // 2), own, ())
        for branch in branches:
            below -= self._counts[branch]
            partial = self._take_from(branch, partial, count=count, below=below, score=score)
        found: _Takings = {}
        for (_, remaining), (sum_, own, picks) in partial.items():
            left = self._left(score, gpus - own, remaining)
            if left not in found or sum_ > found[left][0]:
                found[left] = (sum_, _Pick(own, picks))
        return found

    def _take_from(self, branch: int, partial: _Partial, *, count: int, below: int, score: int) -> _Partial:
        """Go on with every partial pick: more of this sub-branch first, as the lower GPUs are in the first ones."""
        found: _Partial = {}
        steps = 0
        for (taken, remaining), (sum_, own, picks) in partial.items():
            most, least = min(self._counts[branch], count - taken), max(0, count - taken - below)
            for more in range(most, least - 1, -1):
                across = sum_ + score * taken * more
                for left, (inside, pick) in self._takings(branch, more).items():
                    steps += 1
                    key = (taken + more, tuple(sorted((*remaining, left))) if left else remaining)
                    known = found.get(key)
                    if known is None or across + inside > known[0]:
                        found[key] = (across + inside, own, (*picks, pick))
        self._effort.spend(steps)
        return found

    def _left(self, score: int, gpus: int, branches: tuple[int, ...]) -> int:
        single = branches.count(_GPU)
        return self._number(_Shape(score, gpus + single, 0, branches[single:]))

    def _has_required(self, shape: int) -> bool:
        _, _, required, branches = self._shapes[shape]
        return required > 0 or any(self._has_required(branch) for branch in branches)


def _members(branch: _Branch) -> list[int]:
    found = [*branch.gpus, *branch.required]
    for below in branch.branches:
        found.extend(_members(below))
    return found
