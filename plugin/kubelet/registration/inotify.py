"""Wakes the link when something in the kubelet's folder changes, so that idle waiting costs nothing.

A hint only: the link looks for itself, and looks every few seconds without a hint as well. So a lost event or a
kernel without free watches costs seconds, never correctness. ctypes, because Python has no inotify of its own and a
library for 50 lines costs memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# linux/inotify.h
_CREATE, _DELETE, _MOVED_TO, _MOVED_FROM, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x80, 0x40, 0x400, 0x800
_ONLYDIR = 0x01000000
_MASK = _CREATE | _DELETE | _MOVED_TO | _MOVED_FROM | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")  # watch, what happened, cookie, bytes of the entry's name
_ANY = ""
_MAX_PASSES = 16


class FolderWatch:
    """Calls `changed` in the event loop when an entry of the folder comes or goes, or the folder itself.

    The folder above is watched as well, for this one entry: a folder in which a socket was bound does not tell its own
    end before that socket is closed, as the socket keeps it in memory. While the folder is away the nearest one above
    it is watched, in the same way.
    """

    def __init__(self, folder: Path, changed: Callable[[], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        self._watches: dict[int, str] = {}  # → the one entry that counts there, or any

    def renew(self) -> bool:
        """Watch what has the folder's name now, and return whether it is there; cheap when nothing has changed.

        What is watched is looked up until it is found twice: whatever changes after that is told. The same folder
        gives the same watch, a new one in its place another.
        """
        if self._descriptor < 0:
            self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._descriptor < 0:
                return False
            asyncio.get_running_loop().add_reader(self._descriptor, self._drain)
        found = self._watch_nearest()
        for _ in range(_MAX_PASSES):  # one that goes on for longer is told, too: by the watches that there are
            before, found = found, self._watch_nearest()
            if found == before:
                break
        for stale in self._watches.keys() - found.keys():
            self._libc.inotify_rm_watch(self._descriptor, stale)
        self._watches = found
        return _ANY in found.values()

    def _watch_nearest(self) -> dict[int, str]:
        """Watch the folder, or the nearest one above it that is there, and the one above that."""
        entry = _ANY
        for place in (self._folder, *self._folder.parents):
            here = self._watch(place)
            if here >= 0:
                above = self._watch(place.parent)
                return {watch: name for watch, name in ((above, place.name), (here, entry)) if watch >= 0}
            entry = place.name
        return {}

    def _watch(self, folder: Path) -> int:
        return int(self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _MASK))

    def _drain(self) -> None:
        try:
            events = os.read(self._descriptor, 4096)
        except BlockingIOError:
            return
        if any(self._counts(*event) for event in _parse(events)):
            self._changed()

    def _counts(self, watch: int, what: int, entry: str) -> bool:
        """Whether an event is about the folder: of what is not watched any more, nothing is."""
        is_watched = watch in self._watches and (not entry or self._watches[watch] in {_ANY, entry})
        return is_watched or bool(what & _OVERFLOW)

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def _parse(events: bytes) -> Iterator[tuple[int, int, str]]:
    """Return watch, what happened, and the entry of each event; one about a folder itself has no entry."""
    at = 0
    while at < len(events):
        watch, what, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size + length
        yield watch, what, os.fsdecode(events[at - length : at].rstrip(b"\0"))
