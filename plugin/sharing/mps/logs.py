"""Keeps the logs of control daemons small: they are in memory, and each command that is asked adds lines to them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.sharing.mps.plan import MpsDaemon

MAX_BYTES = 4 * 1024 * 1024
_NAMES = ("control.log", "server.log")


def trim_logs(daemon: MpsDaemon) -> None:
    """Empty a log that has become too large. Who writes it goes on: nothing is moved or made.

    No link is followed, and a file of somebody else's is left: an earlier version let everybody write in the folder.
    """
    for name in _NAMES:
        with suppress(OSError):
            _trim(str(daemon.log / name))


def _trim(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        is_own = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
        if is_own and found.st_size > MAX_BYTES:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
