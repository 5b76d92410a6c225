"""Keeps virtual time: a clock that stands still until it is told to go on, and what is going to happen when."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

Happening = Callable[[], None]


class VirtualTime:
    """Seconds since ``start``. ``jump`` is what somebody has put the clock forward or back by: events do not mind."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.jump = timedelta(0)
        self.now_s = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Happening]] = []

    def __call__(self) -> datetime:
        """Return what a clock on the wall shows."""
        return self.start + timedelta(seconds=self.now_s) + self.jump

    def after(self, delay_s: float, happening: Happening) -> None:
        """Have something happen; what is due at the same moment happens in the order in which it was asked for."""
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._order), happening))

    def step(self, until_s: float) -> bool:
        """Let the next thing happen that is due by then; if nothing is, it is then, and the answer False."""
        if not self._due or self._due[0][0] > until_s:
            self.now_s = max(self.now_s, until_s)
            return False
        due_s, _order, happening = heapq.heappop(self._due)
        self.now_s = max(self.now_s, due_s)
        happening()
        return True
