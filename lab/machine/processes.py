"""Kills processes without mistaking another one for them."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def kill_if(pid: int, is_meant: Callable[[int], bool]) -> None:
    """Kill a process through a pidfd, if it is meant once it is held: its pid may have been given again."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_meant(pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
