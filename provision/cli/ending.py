"""Has SIGTERM and SIGHUP end a verb as Ctrl-C does, so that it leaves no temporary file behind.

Verbs that have begun something on nodes end otherwise, see `provision.apply.interrupt`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt for the first of these signals; one that is ignored, as under nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():  # which alone may say what signals do
        yield
        return
    is_ending = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_ending
        if not is_ending:  # a terminal that is closed sends one, and whoever has started this the other
            is_ending = True
            raise KeyboardInterrupt

    former = {number: signal.getsignal(number) for number in _SIGNALS}
    former = {number: handler for number, handler in former.items() if handler is signal.SIG_DFL}
    for number in former:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
