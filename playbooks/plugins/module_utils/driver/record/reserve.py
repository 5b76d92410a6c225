"""Keeps a little of the disk back, so that a disk which becomes full cannot keep a run from being written down.

What a run does is in its journal before it begins, and where it ended in its record. Without room for either, a run
could not begin its way back, or nobody would learn of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import remove_durably, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import HOME, StoreError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_PATH = f"{HOME}/reserve"
_BYTES = 256 * 1024  # a journal is a tenth of that
_RECORD_BYTES = 32 * 1024  # of the reserve, for the record alone


def keep(host: Host) -> None:
    """Take the room, unless it is taken already; raises `StoreError` where the disk does not have it."""
    place = host.path(_PATH)
    try:
        if not place.is_file() or place.stat().st_size < _BYTES:
            write_durably(place, os.urandom(_BYTES))  # nothing that a file system could compress
    except OSError as error:
        raise StoreError(
            f"no-space: {HOME} has no room for {_BYTES >> 10} KiB of a run's journal ({error.strerror or error}): "
            "make room on that file system"
        ) from error


def share(host: Host) -> None:
    """Give most of the room to what is done next, such as a package manager's own notes; raises OSError."""
    place = host.path(_PATH)
    if place.is_file() and place.stat().st_size > _RECORD_BYTES:
        os.truncate(place, _RECORD_BYTES)


def release(host: Host) -> None:
    """Give all of it to the record that is written next; raises OSError."""
    remove_durably(host.path(_PATH))
