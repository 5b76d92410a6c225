"""Wakes the link when something in the kubelet's folder changes, so that idle waiting costs nothing.

A hint only: the link looks for itself, and looks every few seconds without a hint as well. So a lost event or a
kernel without free watches costs seconds, never correctness. ctypes, because Python has no inotify of its own and a
library for 50 lines costs memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# linux/inotify.h
_CREATE, _DELETE, _MOVED_TO, _MOVED_FROM, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x80, 0x40, 0x400, 0x800
_ONLYDIR = 0x01000000
_MASK = _CREATE | _DELETE | _MOVED_TO | _MOVED_FROM | _DELETE_SELF | _MOVE_SELF | _ONLYDIR


class FolderWatch:
    """Calls `changed` in the event loop when an entry of the folder comes or goes.

    While the folder is away the nearest one above it is watched instead.
    """

    def __init__(self, folder: Path, changed: Callable[[], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        self._above = -1  # the watch of a folder above

    def renew(self) -> bool:
        """Watch the folder that has the name now, and return whether there is one; cheap when it is watched already."""
        if self._descriptor < 0:
            self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._descriptor < 0:
                return False
            asyncio.get_running_loop().add_reader(self._descriptor, self._drain)
        # The same folder gives the same watch, a new one in its place another: the kernel ends the old watch.
        if self._watch(self._folder) < 0:
            self._above = next((watch for above in self._folder.parents if (watch := self._watch(above)) >= 0), -1)
            if self._watch(self._folder) < 0:  # it may have come meanwhile
                return False
        if self._above >= 0:
            self._libc.inotify_rm_watch(self._descriptor, self._above)
            self._above = -1
        return True

    def _watch(self, folder: Path) -> int:
        return int(self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _MASK))

    def _drain(self) -> None:
        try:
            os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        self._changed()

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
