"""Exact search over sets of GPUs, each set a number whose bits are its members. Pure.

What remains after a group was taken is the same set however it came about, so the best division of each set is found
once. Good for few GPUs: eight need some hundred steps at most, whatever their scores.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, NamedTuple

from plugin.devices.allocation.preference.division import arranged, group_score

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plugin.devices.allocation.preference.division import Division, Effort, Question

_NO_GROUP = 1 << 60  # "the worst group" of no groups


class _Best(NamedTuple):
    """The best division of a set, and the first group of it (0: nothing is taken any more)."""

    total: int
    worst: int
    group: int = 0


MOST_GPUS = 16
_REST_STEPS = 3  # what it takes to score a rest that no other group leaves


def fewest_steps(question: Question) -> int:
    """Return how many steps it takes at least: all groups, and all rests, that the first GPU could be in."""
    fixed = len(question.required)
    groups = comb(question.count - (fixed or 1), question.size - (fixed or 1))
    rests = 0 if fixed or not question.remainder else comb(question.count - 1, question.remainder - 1)
    return (groups + rests) * (_REST_STEPS if question.count < 2 * question.size else 1)


def divide_by_masks(question: Question, effort: Effort) -> Division:
    """Return the best division; raises CutOff when it takes too many steps."""
    return _MaskSearch(question, effort).run()


def _members(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class _MaskSearch:
    def __init__(self, question: Question, effort: Effort) -> None:
        self._question = question
        self._scores = question.scores
        self._size = question.size
        self._effort = effort
        self._known: dict[int, _Best] = {}

    def run(self) -> Division:
        question = self._question
        everything, count = (1 << question.count) - 1, question.count
        if question.required:
            best = self._best_with(everything, count, question.required, question.size)
        else:
            best = self._best(everything, count)
        groups, left = [], everything
        while best.group:
            groups.append(tuple(_members(best.group)))
            left ^= best.group
            best = self._best(left, left.bit_count())
        whole = [group for group in groups if len(group) == self._size]
        rest = [one for group in groups if len(group) < self._size for one in group]
        return arranged(question, whole, rest or _members(left))

    def _best_with(self, free: int, count: int, start: tuple[int, ...], size: int) -> _Best:
        """Return the best division of a set in which the GPUs of `start` are in a group, or a rest, of this size."""
        total, worst, chosen = -1, -1, 0
        known, left, is_whole = self._known, count - size, size == self._size
        for group, score in self._groups(free, start, size):
            after = known.get(free ^ group) or self._best(free ^ group, left)
            sum_, least = score + after[0], after[1]
            if is_whole and score < least:
                least = score
            if sum_ > total or (sum_ == total and least > worst):
                total, worst, chosen = sum_, least, group
        return _Best(total, worst, chosen)

    def _best(self, free: int, count: int) -> _Best:
        """Return the best division: the lowest GPU is in a whole group, or in the rest, if that is still to be made."""
        known = self._known.get(free)
        if known is not None:
            return known
        if count < self._size:
            found = _Best(group_score(self._scores, tuple(_members(free))), _NO_GROUP)
        else:
            lowest = ((free & -free).bit_length() - 1,)
            found = self._best_with(free, count, lowest, self._size)
            if count % self._size:
                other = self._best_with(free, count, lowest, count % self._size)
                found = found if found[:2] >= other[:2] else other
        self._known[free] = found
        return found

    def _groups(self, free: int, start: tuple[int, ...], size: int) -> list[tuple[int, int]]:
        """Return every group of a size that has the GPUs of `start`, with its score, in the order of its members."""
        found: list[tuple[int, int]] = []
        mask = sum(1 << one for one in start)
        others = list(_members(free & ~mask))
        self._effort.spend(comb(len(others), size - len(start)))
        gains = self._scores[start[0]]
        for one in start[1:]:
            gains = [gain + plus for gain, plus in zip(gains, self._scores[one], strict=True)]
        self._extend(found, others, (mask, group_score(self._scores, start)), gains, size - len(start))
        return found

    def _extend(
        self,
        found: list[tuple[int, int]],
        others: list[int],
        begun: tuple[int, int],
        gains: Sequence[int],
        missing: int,
    ) -> None:
        """Add `missing` of the others to a group that has begun; `gains` is what each GPU would add to its score."""
        group, score = begun
        if missing == 0:
            found.append(begun)
        elif missing == 1:
            found.extend([(group | 1 << one, score + gains[one]) for one in others])
        elif missing == len(others):
            found.append((group | sum(1 << one for one in others), score + self._of_all(others, gains)))
        else:
            for index in range(len(others) - missing + 1):
                one = others[index]
                more = [gain + plus for gain, plus in zip(gains, self._scores[one], strict=True)]
                self._extend(found, others[index + 1 :], (group | 1 << one, score + gains[one]), more, missing - 1)

    def _of_all(self, others: list[int], gains: Sequence[int]) -> int:
        return group_score(self._scores, others) + sum(gains[one] for one in others)
