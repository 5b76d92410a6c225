"""Removes what a node keeps for driver changes once no driver of grapnel's is installed: the program goes last.

A kill on the way leaves the program there, and the removal is run again.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import HOME
from ansible_collections.grapnel.node.plugins.module_utils.machine.commands import our_command
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT, RELEASED, SITE_MARK

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

# Where a package manager learns of the driver's packages; a plan writes them before there is a change.
SOURCES = (
    "/etc/apt/sources.list.d/grapnel-nvidia.sources",
    "/etc/yum.repos.d/grapnel-nvidia.repo",
    "/etc/zypp/repos.d/grapnel-nvidia.repo",
    "/etc/apt/keyrings/grapnel-nvidia.asc",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-nvidia",
)
# That the GPUs are out of service ends with the driver: else those of the next driver would not be offered.
_OF_RELEASE = (RELEASED, SITE_MARK)
# A node without its driver is not as `apply` left it, and not to be told so: the next one writes this again.
RECORD = ("/etc/grapnel/declared.json", "/var/lib/grapnel/drift/result.json")
_RESTART_TIMEOUT_S = 90.0
_RELEASES = "/usr/lib/grapnel/releases"
_PROGRAM = "/usr/lib/grapnel/driver"


def find_leftovers(host: Host) -> list[str]:
    """Return what is there to be removed, in the order in which it goes.

    The record of a node that has nothing for drivers says nothing of one, and stays: it is the node daemon's.
    """
    releases = [f"{_RELEASES}/{name}" for name in host.names(_RELEASES) if name.startswith(("driver-", ".driver-"))]
    ours = (*SOURCES, HOME, *releases, *our_command(host, "driver"), _PROGRAM)
    found = [path for path in ours if os.path.lexists(host.path(path))]
    first = (*_OF_RELEASE, *RECORD) if found else _OF_RELEASE
    return [*(path for path in first if os.path.lexists(host.path(path))), *found]


def remove_leftovers(host: Host) -> list[str]:
    """Remove it, and return what was removed; raises OSError."""
    found = find_leftovers(host)
    for path in found:
        _remove(host.path(path))
        if path == RELEASED:  # the daemon reads it when it starts
            host.run(["systemctl", "try-restart", DAEMON_UNIT], _RESTART_TIMEOUT_S)
    return found


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
