"""Reads how much space the file systems have left that a driver is installed on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_PLACES = ("/", "/boot", "/tmp", "/usr", "/var")  # asked how full it is, nothing is put there


def read_disk_free(host: Host) -> dict[str, int]:
    """Return the facts ``disk_free``: bytes that anybody may use; a folder that is not there is left out."""
    free: dict[str, int] = {}
    for place in _PLACES:
        try:
            answer = os.statvfs(host.path(place))
        except OSError:
            continue
        free[place] = answer.f_bavail * answer.f_frsize
    return free
