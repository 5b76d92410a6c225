"""Builds the product's image (`tasks.image`) of this checkout, under a name that needs no registry."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from tasks import image
from tasks.release.wheel import build_wheel

REFERENCE: Final = "docker.io/local/grapnel:1"


def build(folder: Path, payload: Path, uv: Path) -> Path:
    """Return the archive of an image for `ctr images import`, in ``folder``, without compression.

    The payload lies where it lies here, beside that of the wheel: a controller that runs here names it by that path.
    """
    archive = folder / "grapnel.tar"
    with tempfile.TemporaryDirectory(prefix="grapnel-wheel-") as scratch:
        wheel = build_wheel(Path(scratch) / "wheel", Path(scratch))
        image.build(wheel, uv, archive, REFERENCE, level=0, beside={str(payload).lstrip("/"): payload})
    return archive
