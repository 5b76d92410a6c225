"""Summarizes figures for tables: minimum, median, maximum."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_Name = TypeVar("_Name")


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of figures of one unit."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of one or more figures."""
        known = list(values)
        return cls(min(known), median(known), max(known))

    def show(self, digits: int = 0, width: int = 6) -> str:
        """Return the three, aligned."""
        return " ".join(f"{value:{width}.{digits}f}" for value in (self.low, self.mid, self.high))


def in_turn(names: Sequence[_Name], turn: int) -> list[_Name]:
    """Return the names in the order of a round, so that load and predecessors affect all alike.

    Over as many rounds as there are names, each is in each position once; for an even number of names, each also
    follows each other one once (a Williams square).
    """
    count = len(names)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(count)]
    return [names[(offset + turn) % count] for offset in zigzag]
