"""Turns signals that ask this process to stop into an event that runs check.

The main thread waits for worker threads; a KeyboardInterrupt in the middle of that would leave them behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPING = b"\ngrapnel: stopping as soon as what runs allows it; nothing further begins\n"


@contextlib.contextmanager
def cancel_on_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT, SIGTERM and SIGHUP set; for the main thread only."""
    cancel = threading.Event()
    received: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        # A second signal may come while the first one holds the lock of the event, and would wait for it for ever.
        is_first = not received
        received.append(number)
        if is_first:
            with contextlib.suppress(OSError):  # of a terminal that is gone; and no lock of a stream is taken here
                os.write(2, _STOPPING)
            cancel.set()

    former = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield cancel
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
