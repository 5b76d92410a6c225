"""How long the parts of MPS have, and how soon something is tried again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Seconds, but for `misses`: so many times in a row a control daemon may fail to answer.

    A restart ends the work of every client: one missed answer takes the GPU away, only a minute of them restarts it.
    """

    answer_s: float = 5.0
    check_s: float = 15.0
    recheck_s: float = 1.0  # after a failure, and while clients are waited for
    missed_s: float = 5.0  # after an answer that was missed
    misses: int = 6
    start_s: float = 10.0  # from the start of the control daemon to its first answer
    quit_s: float = 5.0
    mode_s: float = 300.0  # a reset of the GPU takes its compute mode, and not the control daemon
    first_retry_s: float = 1.0
    longest_retry_s: float = 60.0
    steady_s: float = 60.0  # what runs for so long starts from the first pause again


class Retries:
    """Pauses between two starts, each twice as long as the one before. `now_s` is monotonic."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._next_s = pace.first_retry_s
        self._not_before_s: float | None = None

    def left_s(self, now_s: float) -> float:
        """Return how long to wait until the next start, 0 for none."""
        return 0.0 if self._not_before_s is None else max(0.0, self._not_before_s - now_s)

    def started(self, now_s: float) -> None:
        """Note a start, whatever becomes of it."""
        self._not_before_s = now_s + self._next_s
        self._next_s = min(2 * self._next_s, self._pace.longest_retry_s)

    def ran_for(self, age_s: float) -> None:
        """Note how long the control daemon has been up."""
        if age_s >= self._pace.steady_s:
            self._next_s, self._not_before_s = self._pace.first_retry_s, None
