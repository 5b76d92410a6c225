"""Says how soon the engine looks again: at once after something happened, but only so often. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

SOON_S: Final = 0.25
BURST: Final = 20  # turns that may follow one another at once: a node goes through all its phases without waiting


def pauses(longest_s: float) -> Iterator[float]:
    """Yield how long to wait before observing again while nothing moves: what was just started may soon be done."""
    pause_s = min(SOON_S, longest_s)
    while True:
        yield pause_s
        pause_s = min(4 * pause_s, longest_s)


class Pace:
    """Allows one turn every ``SOON_S``, or ``longest_s``, and saves up to ``BURST`` of those that were not taken."""

    def __init__(self, now: datetime, longest_s: float = SOON_S) -> None:
        self._last, self._saved, self._each_s = now, float(BURST), min(SOON_S, longest_s)

    def rest_s(self, now: datetime) -> float:
        """Count a turn; return how long the next one has to wait. A clock that was put back earns nothing."""
        earned = max(timedelta(0), now - self._last).total_seconds() / self._each_s
        self._last, self._saved = now, min(float(BURST), self._saved + earned)
        if self._saved >= 1:
            self._saved -= 1
            return 0.0
        missing, self._saved = 1 - self._saved, 0.0
        self._last = now + timedelta(seconds=missing * self._each_s)
        return missing * self._each_s
