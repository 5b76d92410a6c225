"""Notices a driver that hangs: a call into it does not end, which the caller cannot say itself.

A call into the kernel cannot be ended from outside. What can be done is to stop offering GPUs that are not heard of,
and to say so. Not here: the calls themselves, which go on in the driver's thread (`observer`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.devices.inventory import without_driver
from plugin.devices.observer import Observation

if TYPE_CHECKING:
    from collections.abc import Callable

STALL_S = 60.0  # far above what a healthy driver takes, its first start without persistence mode included
_HINT = "a call into it hangs: see `dmesg | grep -i nvrm`; mostly only a reboot helps"


def stalled(last: Observation, after_s: float) -> Observation:
    """Return what is to be shown while the driver is silent: everything known, and nothing to be given away."""
    reason = f"the driver has not answered for {after_s:g} s"
    return Observation(without_driver(last.inventory, reason), reason, _HINT)


class StallWatch:
    """Calls `stalled` when nothing was heard for `limit_s` after it was due."""

    def __init__(self, limit_s: float, stalled: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._stalled = stalled
        self._timer: asyncio.TimerHandle | None = None

    def heard(self, next_in_s: float = 0.0) -> None:
        """Start waiting again: the driver answered, or is asked now; it is asked again in so many seconds."""
        self.end()
        self._timer = asyncio.get_running_loop().call_later(next_in_s + self._limit_s, self._on_time)

    def end(self) -> None:
        """Wait for nothing: the driver is not asked."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        self._stalled()
