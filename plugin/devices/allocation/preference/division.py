"""The result of every search, and how much a search may cost. Pure.

GPUs are numbers here, `0 … n-1` in the driver's order, and scores a symmetric table with zeros on its diagonal.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Scores = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Question:
    """Divide all GPUs of the table into groups of `size`; one of the groups has all the required ones."""

    scores: Scores
    size: int
    required: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many GPUs there are."""
        return len(self.scores)

    @property
    def remainder(self) -> int:
        """How many GPUs are in no whole group."""
        return self.count % self.size


@dataclass(frozen=True)
class Division:
    """GPUs in groups, the one to give first; `rest` are too few for a group, and stay together."""

    groups: tuple[tuple[int, ...], ...]
    rest: tuple[int, ...] = ()


def group_score(scores: Scores, group: Iterable[int]) -> int:
    """Return the sum over all pairs of a group."""
    return sum([scores[a][b] for a, b in combinations(group, 2)])


def worth(scores: Scores, division: Division) -> tuple[int, int]:
    """Return what a division is compared by: all its pairs' scores; and the worst group, where that is the same."""
    of_groups = [group_score(scores, group) for group in division.groups]
    return sum(of_groups) + group_score(scores, division.rest), min(of_groups)


def arranged(question: Question, groups: Iterable[Iterable[int]], rest: Iterable[int]) -> Division:
    """Return a division with the group to give first: the one with the required GPUs, else the best, else the first."""
    ordered = sorted(tuple(sorted(group)) for group in groups)
    required = set(question.required)

    def place(group: tuple[int, ...]) -> tuple[bool, int]:
        return not required <= set(group), -group_score(question.scores, group)

    return Division(tuple(sorted(ordered, key=place)), tuple(sorted(rest)))


class CutOff(Exception):
    """The search may go no further; the message says why."""


def never() -> bool:
    """Answer `is_late` where there is no deadline."""
    return False


@dataclasses.dataclass
class Effort:
    """Steps that a search may still make, a step being a group that is looked at.

    Steps and not time, so that the same question has the same answer on a busy node; `is_late` is for the worst.
    """

    steps: int
    is_late: Callable[[], bool] = never
    used: int = dataclasses.field(default=0, init=False)

    def spend(self, steps: int) -> None:
        """Count steps that are about to be made; raises CutOff where there are not so many left."""
        if self.used + steps > self.steps:
            raise CutOff(f"more than {self.steps} steps")
        if self.is_late():
            raise CutOff("the time is up")
        self.used += steps
