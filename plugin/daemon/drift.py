"""Follows what the node's timer finds when it compares the node with its declaration: a file, looked at once a minute.

The daemon compares nothing itself: it lacks the rights to read all files, and hashing them is no work for it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from plugin.base.log import Logger
    from plugin.drift.result import Result

    Stamp: TypeAlias = "tuple[int, int, int] | None"

STALE_S = 3 * 3600  # the timer waits 80 minutes at most
_TOPIC = "drift"
_ASK = "is grapnel-drift.timer active, and /etc/grapnel/declared.json there?"


class DriftWatch:
    """Keeps the last result. `tell` is called with what is so: with the last result, or that there is none any more.

    `state_folder` is the daemon's own at the moment; the timer's lies beside it. Used in the event loop's thread.
    """

    def __init__(
        self,
        state_folder: Callable[[], Path],
        tell: Callable[[Result], None],
        logger: Logger,
        pace_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state_folder = state_folder
        self._tell = tell
        self._log = logger
        self._pace_s = pace_s
        self._clock = clock
        self._stamp: Stamp = None
        self._told: Result | None = None
        self.result: Result | None = None

    async def follow(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._pace_s)

    def look(self) -> None:
        """Look once."""
        path = self._state_folder().parent / "drift/result.json"
        stamp = _stamp(path)
        if stamp != self._stamp:
            self._stamp, self.result = stamp, None if stamp is None else self._read(path)
        if self.result is None and self._told is None:
            return  # a node without the timer
        now = self._judge()
        if now != self._told:
            self._told = now
            self._tell(now)

    def _judge(self) -> Result:
        """Return the result, unless it is so old that the timer cannot be at work."""
        from plugin.drift.result import Result  # noqa: PLC0415 - most starts come before any result

        if self.result is None:
            return Result(0, reason=f"there is no result any more: {_ASK}")
        if self._clock() - self.result.at <= STALE_S:
            return self.result
        last = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.result.at))
        return Result(self.result.at, reason=f"nothing was compared since {last}: {_ASK}")

    def _read(self, path: Path) -> Result | None:
        from plugin.drift.result import MAX_BYTES, parse_result  # noqa: PLC0415 - as above

        try:
            result = parse_result(read_bounded(path, MAX_BYTES + 1))
        except (OSError, ValueError) as error:
            self._log.standing(_TOPIC, f"{path}: {error}", hint="systemctl start grapnel-drift.service writes it again")
            return None
        self._log.standing(_TOPIC)
        return result


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
