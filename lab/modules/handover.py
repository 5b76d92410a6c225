"""Puts a built module on a node as the controller hands over the files of a bundle (``docs/contracts/bundle``)."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Node

INCOMING = "var/lib/grapnel/driver/incoming"


def hand_over(node: Node, change: str, archive: Path) -> None:
    """Hand the module of a driver change over, for the kernel that the node says it runs."""
    folder = node.root / INCOMING / change
    place = f"modules/{node.kernel_release}.tar.gz"
    folder.joinpath("modules").mkdir(parents=True, exist_ok=True)
    shutil.copy(archive, folder / place)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    folder.joinpath("list.json").write_text(json.dumps({place: digest}))
