"""Builds the image of grapnel: `make image`, or ``python -m tasks.image``.

`debian` unpacks Debian's packages, `python` installs the pinned packages and the wheel, `root` packs both as one
reproducible tar, `engine` has podman make an image of it by deploy/image/Containerfile.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.machine.folders import content_key
from tasks.image import debian, engine, python, root

if TYPE_CHECKING:
    from tasks.image.engine import Built

ROOT: Final = Path(__file__).parents[2]
CONTAINERFILE: Final = ROOT / "deploy" / "image" / "Containerfile"
REQUIREMENTS: Final = ROOT / "requirements" / "provision.txt"

__all__ = ["CONTAINERFILE", "build"]


def build(wheel: Path, uv: Path, archive: Path, reference: str) -> Built:
    """Build the image of a wheel as an OCI archive with that name, and return its digest and size.

    Raises LabError for packages that cannot be had, CommandError for a tool that fails.
    """
    tree = debian.ensure()
    packages = python.ensure(tree, REQUIREMENTS, uv)
    with tempfile.TemporaryDirectory(prefix="grapnel-image-") as folder:
        own, context = Path(folder) / "own", Path(folder) / "context"
        python.install_wheel(own, tree, wheel, uv)
        context.mkdir()
        root.pack(tree, (packages, own), context / "root.tar")
        return engine.build(CONTAINERFILE, context, archive, reference)


def key_of(wheel: Path) -> str:
    """Return the digest of everything that an image of this wheel is made of."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    texts = [path.read_bytes() for path in (wheel, CONTAINERFILE, REQUIREMENTS, *sources)]
    return content_key(debian.key(), python.key(REQUIREMENTS), *texts)
