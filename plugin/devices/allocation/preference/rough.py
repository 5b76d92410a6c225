"""Bounded search: two simple divisions, each improved by exchanges for as long as that helps. Pure.

For many GPUs that form no tree. The answer is a good one; nothing says that it is the best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.allocation.preference.division import arranged, worth

if TYPE_CHECKING:
    from plugin.devices.allocation.preference.division import Division, Effort, Question


def divide_roughly(question: Question, effort: Effort) -> Division:
    """Return the better of the two divisions; the first may take half of the effort."""
    return max(
        (_improved(question, start, effort) for start in (_by_index(question), _by_nearness(question))),
        key=lambda division: worth(question.scores, division),
    )


def _by_index(question: Question) -> list[list[int]]:
    """Group neighbours in the driver's order, which is that of the PCI addresses."""
    others = [one for one in range(question.count) if one not in question.required]
    first = question.size - len(question.required)
    groups = [[*question.required, *others[:first]]]
    groups.extend(others[start : start + question.size] for start in range(first, len(others), question.size))
    return groups


def _by_nearness(question: Question) -> list[list[int]]:
    """Group by group, add the GPU that gains most."""
    scores = question.scores
    left = [one for one in range(question.count) if one not in question.required]
    groups, group = [], list(question.required)
    while left or group:
        if not group:
            group = [left.pop(0)]
        gains = [sum(scores[one][member] for member in group) for one in left]
        while left and len(group) < question.size:
            at = gains.index(max(gains))
            one = left.pop(at)
            del gains[at]
            group.append(one)
            gains = [gain + scores[other][one] for gain, other in zip(gains, left, strict=True)]
        groups.append(group)
        group = []
    return groups


def _improved(question: Question, groups: list[list[int]], effort: Effort) -> Division:
    exchange = _Exchange(question, groups)
    limit = effort.used + (effort.steps - effort.used) // 2
    is_better = True
    while is_better:
        is_better = False
        for index in range(len(exchange.movable)):
            steps = len(exchange.movable) - index
            if effort.used + steps > limit or effort.is_late():
                return exchange.division()
            effort.used += steps
            is_better = exchange.try_from(index) or is_better
    return exchange.division()


class _Exchange:
    """A division that changes by exchanging two GPUs of two groups; the required ones stay where they are."""

    def __init__(self, question: Question, groups: list[list[int]]) -> None:
        self._question = question
        self._scores = question.scores
        self._groups = range(len(groups))
        self._owner = [0] * question.count
        for number, group in enumerate(groups):
            for one in group:
                self._owner[one] = number
        # What each GPU scores, or would score, with the members of each group.
        self._with = [[sum(row[member] for member in group) for group in groups] for row in question.scores]
        self.movable = [one for one in range(question.count) if one not in question.required]

    def try_from(self, index: int) -> bool:
        """Exchange a GPU with that later one with which most is gained; returns False where nothing is."""
        one = self.movable[index]
        mine, row, here = self._with[one], self._scores[one], self._owner[one]
        stay, best, partner = mine[here], 0, -1
        for other in self.movable[index + 1 :]:
            there = self._owner[other]
            theirs = self._with[other]
            gain = mine[there] + theirs[here] - stay - theirs[there] - 2 * row[other]
            if gain > best and there != here:
                best, partner = gain, other
        if partner >= 0:
            self._swap(one, partner)
        return partner >= 0

    def _swap(self, one: int, other: int) -> None:
        here, there = self._owner[one], self._owner[other]
        self._owner[one], self._owner[other] = there, here
        for each, row in zip(self._with, self._scores, strict=False):
            moved = row[one] - row[other]
            each[here] -= moved
            each[there] += moved

    def division(self) -> Division:
        """Return the current division."""
        size = self._question.size
        divided = [[one for one, owner in enumerate(self._owner) if owner == number] for number in self._groups]
        rest = [one for group in divided if len(group) < size for one in group]
        return arranged(self._question, [group for group in divided if len(group) == size], rest)
