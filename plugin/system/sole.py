"""Keeps a second daemon off a node: a lock on a file, which the kernel lets go of however its holder ends.

The service and a pod of the DaemonSet lock the same file: both have the folder of the admin socket. Not here: which of
the two may have the node.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_MAX_BYTES = 512
_POLL_S = 0.5
_MODE = 0o600


def lock_path(admin_socket: Path) -> Path:
    """Return the file that the daemon of an admin socket locks: beside it."""
    return admin_socket.with_suffix(".lock")


def own_name(environment: Mapping[str, str], *, is_pod: bool) -> str:
    """Return what people know this daemon by."""
    if is_pod:
        return f"pod {environment.get('POD_NAMESPACE', '?')}/{environment.get('POD_NAME', '?')}"
    return "the service grapnel-node" if environment.get("NOTIFY_SOCKET") else f"process {os.getpid()}"


class NodeLock:
    """The lock on one file. Held from a `take` that succeeds until the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def take(self, name: str, *, timeout_s: float | None, waits: Callable[[str], None]) -> str:
        """Take the lock, within a time limit or without one; returns "", or who has it. Raises OSError.

        `waits` is called once, with who has it, where it has to be waited for.
        """
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        is_told = False
        while not lock_now(descriptor):
            holder = _read(descriptor)
            if not is_told:
                waits(holder)
                is_told = True
            if deadline is not None and time.monotonic() >= deadline:
                os.close(descriptor)
                return holder
            time.sleep(_POLL_S)
        self._descriptor = descriptor
        with suppress(OSError):  # a disk that is full: the lock holds without a name, too
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, name.encode()[:_MAX_BYTES], 0)
        return ""

    def release(self) -> None:
        """Let another one have it; the file stays, as one that was removed could be locked twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock_now(descriptor: int) -> bool:
    """Lock an open file where no other process has; return whether it is ours."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> str:
    """Return who has the lock, as it wrote it; one that has just taken it may not have written yet."""
    said = os.pread(descriptor, _MAX_BYTES, 0).decode("utf-8", "replace").strip()
    return said if said and said.isprintable() else "another process"
