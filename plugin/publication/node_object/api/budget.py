"""How often the API may be asked: a bucket of calls, and waiting longer after each failure. Pure.

A fleet shares one API server: 5,000 nodes with the same trouble at once must not bring it down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 20
REFILL_S = 30.0
FIRST_WAIT_S = 1.0
MAX_WAIT_S = 300.0


class Bucket:
    """Calls that may be made now; one more every `refill_s`, up to `burst`."""

    def __init__(self, burst: int = BURST, refill_s: float = REFILL_S) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._full_s = float("-inf")  # when it is full again

    def ready_s(self, now_s: float) -> float:
        """Return when the next call may be made."""
        return max(now_s, self._full_s - (self._burst - 1) * self._refill_s)

    def take(self, now_s: float) -> None:
        """Make a call."""
        self._full_s = max(self._full_s, now_s) + self._refill_s


class Backoff:
    """Waits twice as long after each failure, by chance a half less or more, so that nodes do not come together."""

    def __init__(self, chance: Callable[[], float], first_s: float = FIRST_WAIT_S) -> None:
        self._chance = chance
        self._first_s = first_s
        self._failures = 0
        self.until_s = float("-inf")

    def failed(self, now_s: float, at_least_s: float = 0.0) -> None:
        """Wait. `at_least_s` is what the API asked for; chance only adds to it."""
        wait_s = min(self._first_s * 2 ** min(self._failures, 16), MAX_WAIT_S)
        self._failures += 1
        self.until_s = now_s + max(wait_s * (0.5 + self._chance()), at_least_s * (1 + self._chance() / 2))

    def succeeded(self) -> None:
        """Start from the beginning the next time."""
        self._failures = 0
        self.until_s = float("-inf")
