"""When a container that is over its share is told of, and when its pod is to go. Pure.

Only an unbroken row of measurements counts: after one that fails or comes too late the grace begins again, since nobody
knows what was meanwhile. What was told is remembered across such gaps: nothing is told twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.sharing.overuse.measure import Use

    Key = tuple[str, str, str]  # uid of the pod, id of the container, UUID of the device


@dataclass(frozen=True)
class Verdict:
    """What a measurement leads to. `due`: those that were over for all of the grace, with each measurement again."""

    began: tuple[Use, ...] = ()
    ended: tuple[Use, ...] = ()
    due: tuple[Use, ...] = ()


class Judge:
    """Hears of every measurement, at monotonic seconds. `pace_s` is the time from one to the next.

    Over-use is told from the second measurement in a row on: a program may free what it allocates.
    """

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._since: dict[Key, float] = {}
        self._told: dict[Key, Use] = {}
        self._measured_s = float("-inf")

    def measured(self, uses: Iterable[Use], now_s: float, grace_s: float) -> Verdict:
        """Take a measurement."""
        if now_s - self._measured_s > 2 * self._pace_s:
            self._since.clear()
        self._measured_s = now_s
        over = {_key(use): use for use in uses if use.is_over}
        self._since = {key: self._since.get(key, now_s) for key in over}
        began = {key: use for key, use in over.items() if key not in self._told and self._since[key] < now_s}
        ended = {key: use for key, use in self._told.items() if key not in over}
        self._told = {key: use for key, use in (self._told | began).items() if key in over}
        due = tuple(use for key, use in over.items() if now_s - self._since[key] >= grace_s)
        return Verdict(tuple(began.values()), tuple(ended.values()), due)

    def missed(self) -> None:
        """Take note that a measurement failed."""
        self._since.clear()


def _key(use: Use) -> Key:
    return use.owner.pod_uid, use.owner.container_id, use.uuid
