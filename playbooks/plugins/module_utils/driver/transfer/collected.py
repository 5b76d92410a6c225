"""Gives an archive that `grapnel-driver collect` has made to whoever fetches it, and removes it afterwards.

The user that ssh logs in as need not be root, and cannot enter the folder where it was made.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import is_change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.collect import COLLECTED, collected_archive
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import remove

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

FOLDER = "/var/lib/grapnel/collected"
FILE = f"{FOLDER}/driver.tar"


class CollectedError(Exception):
    """There is nothing to be fetched; the message says why."""


def hand_out(host: Host, identifier: str, owner: int) -> None:
    """Put the archive of a change where a user can read it; raises `CollectedError`, OSError."""
    if not is_change_id(identifier):
        raise CollectedError(f"{identifier[:64]!r} is not the name of a driver change")
    archive, folder = host.path(collected_archive(identifier)), host.path(FOLDER)
    if not archive.is_file():
        raise CollectedError(f"nothing was collected for the change {identifier}")
    remove(folder)
    folder.mkdir(mode=0o700)
    shutil.move(os.fspath(archive), os.fspath(host.path(FILE)))
    os.chown(host.path(FILE), owner, -1)
    os.chown(folder, owner, -1)  # last: until now nobody else could put anything in it


def take_back(host: Host) -> bool:
    """Remove everything that was collected, and tell whether there was anything; raises OSError."""
    places = [host.path(path) for path in (FOLDER, COLLECTED)]
    found = any(os.path.lexists(place) for place in places)
    for place in places:
        remove(place)
    return found
