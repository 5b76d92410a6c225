"""Work that is asked for more often than it can be done: one at a time, and once more for all who asked meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Coalesced:
    """Call it to have `work` done from now on; `spawn` starts a task. In the event loop's thread."""

    def __init__(self, work: Callable[[], Awaitable[None]], spawn: Callable[[Awaitable[None]], None]) -> None:
        self._work = work
        self._spawn = spawn
        self._is_due = False
        self._is_working = False

    def __call__(self) -> None:
        """Ask for the work; what begins after this call has seen everything before it."""
        self._is_due = True
        if not self._is_working:
            self._is_working = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                await self._work()
                await asyncio.sleep(0)  # others have their turn, however often it is asked for
        finally:
            self._is_working = False
