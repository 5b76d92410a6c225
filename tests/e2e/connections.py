"""Breaks connections of a node's processes from outside: neither end has done or said anything."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

_PIDFD_GETFD = 438  # on every architecture; Python has no name for it
_CONNECTED = "03"  # SS_CONNECTED of linux/net.h, as /proc/net/unix shows it


def break_connections(pid: int, path_contains: str) -> int:
    """Shut every connection down that a process has accepted on such a unix socket; return how many there were."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        accepted = _accepted(pid, path_contains)
        for descriptor in accepted:
            taken = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
            if taken < 0:
                raise OSError(ctypes.get_errno(), f"pidfd_getfd of descriptor {descriptor} of process {pid}")
            with socket.socket(fileno=taken) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        return len(accepted)
    finally:
        os.close(process)


def _accepted(pid: int, path_contains: str) -> list[int]:
    """Return descriptors: a socket that was accepted has the path of the one that listened."""
    lines = (line.split() for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:])
    inodes = {f"socket:[{each[6]}]" for each in lines if each[5] == _CONNECTED and path_contains in "".join(each[7:])}
    return [descriptor for descriptor, target in _descriptors(pid).items() if target in inodes]


def _descriptors(pid: int) -> dict[int, str]:
    return {
        int(path.name): os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()
    }  # what a link says, "socket:[7]", is no path


def count_descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(_descriptors(pid))
