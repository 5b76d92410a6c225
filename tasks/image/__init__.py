"""Builds the image of grapnel: `make image`, or ``python -m tasks.image``.

`debian` unpacks Debian's packages, `python` installs the pinned packages and the wheel, `node` unpacks the node daemon
that the wheel has for nodes, `root` packs all of it as one reproducible tar, `archive` writes an image of that as
`containerfile` reads it from deploy/image/Containerfile.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tasks.image import debian, node, python, root
from tasks.image.archive import write_archive
from tasks.image.containerfile import CONTENT, read_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.planning.architecture import Architecture
    from tasks.image.archive import Built

ROOT: Final = Path(__file__).parents[2]
CONTAINERFILE: Final = ROOT / "deploy" / "image" / "Containerfile"
REQUIREMENTS: Final = ROOT / "requirements" / "provision.txt"

LEVEL: Final = 6

__all__ = ["CONTAINERFILE", "build"]


def build(
    wheel: Path,
    uv: Path,
    archive: Path,
    reference: str,
    *,
    architecture: Architecture = python.OF_THIS_MACHINE,
    level: int = LEVEL,
    beside: Mapping[str, Path] | None = None,
) -> Built:
    """Build the image of a wheel as an OCI archive with that full name (`HOST/grapnel:1.2.3`); ``level`` is gzip's.

    It is for one architecture; nothing of that is run, so that any machine builds the images of all.
    ``beside`` are further folders by their places in the image, without a leading slash: for tests.

    Raises LabError for packages or tools that cannot be had, TaskError for a Containerfile that is not understood,
    PayloadError for a wheel without the archives for nodes.
    """
    config = read_config(CONTAINERFILE)
    runner, tree = debian.ensure(python.OF_THIS_MACHINE), debian.ensure(architecture)
    packages = python.ensure(runner, REQUIREMENTS, uv, architecture)
    with tempfile.TemporaryDirectory(prefix="grapnel-image-") as folder:
        own, daemon, packed = Path(folder) / "own", Path(folder) / "node", Path(folder) / CONTENT
        python.install_wheel(own, runner, wheel, uv)
        node.unpack(daemon, runner, own)
        library = f"{root.HOME}/lib"
        folders = ((library, packages), (library, own), (node.HOME, daemon), *(beside or {}).items())
        root.pack(tree, folders, packed)
        return write_archive(packed, config, reference, archive, level=level, architecture=architecture.debian)
