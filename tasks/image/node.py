"""Unpacks the node daemon of a wheel into the image: the same archive that nodes are given, compiled."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Final

from provision.planning.supply.payload.store import load_payload
from tasks.image import python

if TYPE_CHECKING:
    from pathlib import Path

HOME: Final = "usr/lib/grapnel/node"  # as on a host
_PAYLOAD: Final = "provision/_payload/archives"  # of a release's wheel


def unpack(folder: Path, runner: Path, installed: Path) -> None:
    """Unpack the daemon into a new folder, from the folder in which the wheel is installed.

    Raises PayloadError for a wheel without the archives.
    """
    with tarfile.open(load_payload(installed / _PAYLOAD).node.path) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python 3.11.2 has none
        for member in packed:
            packed.extract(member, folder)
    python.compile_all(runner, folder, f"/{HOME}")
