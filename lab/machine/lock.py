"""Locks out concurrent commands with ``flock`` files, which the kernel unlocks when a process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING

from lab.machine.errors import BusyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLL_S = 0.05


@contextlib.contextmanager
def locked(path: Path, *, wait_s: float) -> Iterator[None]:
    """Hold ``path`` exclusively; ``BusyError`` names the holder if it is not free within ``wait_s``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, path, time.monotonic() + wait_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, deadline: float) -> None:
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > deadline:
            holder = path.read_text().strip() or "unknown"
            raise BusyError(f"{path}: locked by process {holder}", hint="wait for that command, or end it")
        time.sleep(POLL_S)
