"""Tells who holds a package manager's lock, and waits for the end of a transaction."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

_LOCK_POLL_S = 0.5


def wait_for(
    find_holder: Callable[[Host], dict[str, Any] | None], host: Host, timeout_s: float, clock: Clock
) -> dict[str, Any] | None:
    """Return the lock's holder, None as soon as there is none; somebody's transaction is usually over in a moment.

    Facts that were read in the middle of one would be out of date before anybody saw them.
    """
    deadline = clock.now() + timeout_s
    while (holder := find_holder(host)) is not None and clock.now() + _LOCK_POLL_S <= deadline:
        clock.sleep(_LOCK_POLL_S)
    return holder


def describe(host: Host, pid: int) -> dict[str, Any]:
    """Return the facts ``locked_by`` of a process."""
    return {"pid": pid, "command": printable(host.read_text(f"/proc/{pid}/comm") or "")}


def locking_pid(host: Host, path: str) -> int | None:
    """Ask the kernel who holds a POSIX lock on a file, without taking it (``struct flock`` of 64-bit Linux)."""
    flock = "hhqqi"
    question = struct.pack(flock, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with host.open(path) as stream:
            answer = fcntl.fcntl(stream, fcntl.F_GETLK, question)
    except OSError:
        return None
    kind, _, _, _, pid = struct.unpack(flock, answer)
    return None if kind == fcntl.F_UNLCK else int(pid)


def pid_in(host: Host, path: str) -> int | None:
    """Return the process that a pid file names, None where it has ended: whoever is next takes the file over."""
    text = host.read_text(path) or ""
    if not (text.isascii() and text.isdecimal()) or not host.path(f"/proc/{int(text)}").exists():
        return None
    return int(text)
