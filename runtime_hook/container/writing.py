"""Chooses temporary names in a container's folders, so that killed hooks leave nothing that accumulates.

A file or link is made under a temporary name and renamed. A hook that is killed in between leaves that name behind.
So one name is used for all, and what bears it is removed by the next hook: that is safe while this hook holds the
lock on the folder, which the kernel gives back when its holder dies. Where the lock cannot be had (another hook works
on the same root, or its container holds it to annoy us), the name is a random one.
"""

from __future__ import annotations

import fcntl
import os

_NAME = ".grapnel-new"


class TemporaryNames:
    """Gives out a name that nothing has, folder by folder; folders are known by their descriptors."""

    def __init__(self) -> None:
        self._locks: dict[int, int] = {}

    def name(self, folder: int) -> str:
        """Return a name to make something under."""
        if folder not in self._locks:
            self._locks[folder] = _lock(folder)
        return _NAME if self._locks[folder] >= 0 else f".grapnel-{os.urandom(8).hex()}"


def _lock(folder: int) -> int:
    """Lock a folder for the life of this process and clear the name there; -1 where that cannot be had."""
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _clear(folder)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _clear(folder: int) -> None:
    try:
        os.unlink(_NAME, dir_fd=folder)
    except FileNotFoundError:
        return


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
