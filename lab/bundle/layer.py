"""Builds layers: packages installed once by the suite's own apt, to be mounted between its tree and a node.

This way a node with a container engine starts as fast as a bare one, and dpkg knows every file of it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab import trees
from lab.bundle.folder import ensure
from lab.bundle.repository import PUBLIC_KEY
from lab.machine.command import CONTAINED, run
from lab.machine.folders import cache_dir, content_key, write_atomic
from lab.machine.lock import locked

if TYPE_CHECKING:
    from collections.abc import Sequence

INSTALLER = Path(__file__).with_name("install.py")
BUILD_TIMEOUT_S = 600.0


def ensure_layer(suite: str, packages: Sequence[str]) -> Path:
    """Return the folder with what installing ``packages`` adds to the tree of ``suite``, building it if needed."""
    tree, folder = trees.ensure(suite), ensure(suite).folder
    home = cache_dir() / "layers"
    layer = home / f"{suite}-{content_key(tree.name, folder.name, INSTALLER.read_bytes(), *packages)}"
    if not layer.is_dir():
        with locked(home / "build.lock", wait_s=BUILD_TIMEOUT_S):
            if not layer.is_dir():
                _build(tree, folder, packages, layer)
    return layer


def _build(tree: Path, packages_folder: Path, packages: Sequence[str], layer: Path) -> None:
    """Install into a temporary folder, then rename it; the mounts vanish with the installer's mount namespace."""
    partial = layer.with_name(f".{layer.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in ("upper", "work", "root"):
        (partial / name).mkdir(parents=True)
    (partial / "upper").chmod(0o755)
    config = {
        "tree": str(tree),
        "folder": str(partial),
        "bundle": str(packages_folder),
        "key": PUBLIC_KEY,
        "packages": list(packages),
    }
    path = partial / "install.json"
    write_atomic(path, json.dumps(config))
    run([*CONTAINED, sys.executable, "-I", str(INSTALLER), str(path)], timeout_s=BUILD_TIMEOUT_S)
    (partial / "upper").rename(layer)
    shutil.rmtree(partial)
