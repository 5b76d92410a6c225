"""Provides Debian's dracut as packages to install on a builder's node, where initramfs-tools is; fetched once, 1 MB.

A node installs them as an operator would: ``CORE`` goes beside initramfs-tools, ``dracut`` takes its place.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from lab import bundle
from lab.bundle.contents import Request
from lab.bundle.fetch import Fetcher
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import find_mirrors

SUITE: Final = "trixie"
PACKAGE: Final = "dracut"
CORE: Final = "dracut-core"  # the program alone, and what it needs
FETCH_TIMEOUT_S: Final = 600.0


def ensure() -> Path:
    """Return the folder with the packages that a builder of ``SUITE`` lacks. Raises LabError."""
    layer = bundle.ensure_layer(SUITE, bundle.BUILDER_PACKAGES)
    folder = cache_dir() / "dracut" / f"{SUITE}-{content_key(layer.name, PACKAGE)}"
    if not folder.is_dir():
        with locked(folder.with_name(f"{SUITE}.lock"), wait_s=FETCH_TIMEOUT_S):
            if not folder.is_dir():
                _fetch(layer, folder)
    return folder


def _fetch(layer: Path, folder: Path) -> None:
    """Fetch into a temporary folder and rename it: what is there is whole."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as name:
        work = Path(name)
        fetcher = Fetcher(SUITE, layer, work / "apt", work / "pool")
        fetcher.prepare(find_mirrors(), set())
        fetcher.fetch(Request((PACKAGE,)))
        shutil.rmtree(work / "pool/partial")
        (work / "pool/lock").unlink(missing_ok=True)
        (work / "pool").chmod(0o755)
        (work / "pool").rename(folder)
