"""Unpacks the node daemon of a wheel for the Python of the image: the same archive that nodes are given, compiled."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Final

from provision.payload.store import load_payload
from tasks.errors import TaskError
from tasks.image import python
from tasks.image.packages import PYTHON

if TYPE_CHECKING:
    from pathlib import Path

HOME: Final = "usr/lib/grapnel/node"  # as on a host
_PAYLOAD: Final = "provision/_payload/archives"  # of a release's wheel


def unpack(folder: Path, tree: Path, installed: Path) -> None:
    """Unpack the daemon into a new folder, from the folder in which the wheel is installed.

    Raises PayloadError for a wheel without the archives, TaskError for one that has none for the image's Python.
    """
    artifact = load_payload(installed / _PAYLOAD).node.get(PYTHON)
    if artifact is None:
        raise TaskError(
            f"the wheel has no node daemon for Python {PYTHON}: extend PYTHONS of provision/payload/build.py"
        )
    with tarfile.open(artifact.path) as packed:
        packed.extractall(folder, filter="data")
    python.compile_all(tree, folder, f"/{HOME}")
