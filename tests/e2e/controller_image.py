"""The product's own image on the nodes of the stage: built once of the checkout, and imported without a registry.

Beside what a release has in it, the checkout's payload lies where it lies on this machine: a controller that runs here
names it by that path to its Jobs.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from lab.cluster.controller import load_image
from lab.machine.folders import cache_dir
from lab.machine.lock import locked
from provision import __version__
from tasks.environment import uv_path
from tasks.image import build
from tasks.progress import Progress
from tasks.release.wheel import build_wheel

if TYPE_CHECKING:
    from tests.e2e.stage import LabNode

PAYLOAD = Path(__file__).parents[2] / "dist" / "payload"
REGISTRY = "docker.io/local"
REFERENCE = f"{REGISTRY}/grapnel:{__version__}"
LOCK_WAIT_S = 600.0
_BUILT: list[Path] = []
_BUILDING = Lock()
_LOADED: set[str] = set()  # nodes


def archive() -> Path:
    """Return the archive of this checkout's image, built once in a process, without compression."""
    with _BUILDING:
        if not _BUILT:
            folder = Path(tempfile.mkdtemp(prefix="grapnel-e2e-image-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            uv = uv_path(Progress(log_dir=cache_dir() / "logs"))
            with locked(cache_dir() / "images" / "e2e.lock", wait_s=LOCK_WAIT_S):
                wheel = build_wheel(folder, folder)
                beside = {str(PAYLOAD).lstrip("/"): PAYLOAD}
                build(wheel, uv, folder / "grapnel.tar", REFERENCE, level=0, beside=beside)
            _BUILT.append(folder / "grapnel.tar")
        return _BUILT[0]


def load(node: LabNode) -> None:
    """Have the image in the engine of a node, where it stays for later tests."""
    if node.name not in _LOADED:
        load_image(node.node, archive(), REFERENCE, is_crio=node.engine == "crio")
        _LOADED.add(node.name)
