"""Tasks that run beside the daemon, and end with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Tasks:
    """Holds on to tasks while they run: asyncio itself keeps weak references alone."""

    def __init__(self) -> None:
        self._running: set[asyncio.Future[None]] = set()

    def spawn(self, work: Awaitable[None]) -> None:
        """Start a task."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """Cancel all that still run."""
        for task in self._running:
            task.cancel()
