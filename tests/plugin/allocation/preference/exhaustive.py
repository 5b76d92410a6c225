"""Looks at every division there is: slow, and simple enough to be believed."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from plugin.devices.allocation.preference.division import Division, worth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugin.devices.allocation.preference.division import Question

Groups = list[tuple[int, ...]]


def divisions(left: list[int], size: int) -> Iterator[Groups]:
    """Yield every way to make groups of a size, and one smaller group of what is too few for another one."""
    if len(left) < size:
        yield [tuple(left)] if left else []
        return
    first, others = left[0], left[1:]
    for members in combinations(others, size - 1):
        for after in divisions([one for one in others if one not in members], size):
            yield [(first, *members), *after]
    if len(left) % size:
        for members in combinations(others, len(left) % size - 1):
            for after in divisions([one for one in others if one not in members], size):
                yield [(first, *members), *after]


def exhaustive_worth(question: Question) -> tuple[int, int]:
    """Return what the best division is worth in which one group has all the required GPUs."""
    best = (-1, -1)
    for groups in divisions(list(range(question.count)), question.size):
        whole = tuple(group for group in groups if len(group) == question.size)
        rest = tuple(one for group in groups if len(group) < question.size for one in group)
        if any(set(question.required) <= set(group) for group in whole):
            best = max(best, worth(question.scores, Division(whole, rest)))
    return best
