"""Unpacks Debian's packages that the image is made of, through this machine's own apt configuration.

They are unpacked and not installed: no maintainer script runs, so that the result depends on the packages alone, and
what only an installation needs (apt, dpkg's database, perl) is not there.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from lab.machine.command import CONTAINED, run
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import carried_options, find_mirrors
from lab.machine.requirements import require_machine
from tasks.image import python
from tasks.image.packages import PACKAGES, PYTHON, SUITE

if TYPE_CHECKING:
    from pathlib import Path

    from provision.planning.architecture import Architecture

TIMEOUT_S: Final = 900.0
# What a scanner of images wants to know, where it looks for it in an image without dpkg.
_STATUS: Final = """\
mkdir -p "$1"/var/lib/dpkg/status.d
for deb in "$1"/var/cache/apt/archives/*.deb; do
    dpkg-deb --field "$deb" > "$1"/var/lib/dpkg/status.d/"$(dpkg-deb --field "$deb" Package)"
done"""


def key(architecture: Architecture) -> str:
    """Return the digest of what is asked of Debian."""
    return content_key(SUITE, architecture.debian, *PACKAGES, _STATUS)


def ensure(architecture: Architecture) -> Path:
    """Return the tree of unpacked packages, from the cache where it is there (half a minute, 104 MB)."""
    home = cache_dir() / "images"
    tree = home / f"debian-{SUITE}-{key(architecture)}"
    if tree.is_dir():
        return tree
    require_machine()
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / "debian.lock", wait_s=TIMEOUT_S):
        if not tree.is_dir():
            unpack(tree, architecture)
    return tree


def unpack(tree: Path, architecture: Architecture) -> None:
    """Unpack the packages as the mirrors have them now: in a temporary folder, which is then renamed."""
    partial = tree.with_name(f".{tree.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    arguments = ["--variant=extract", "--mode=root", "--format=directory", f"--architectures={architecture.debian}"]
    arguments += [f"--include={','.join(PACKAGES)}"]
    arguments += [f"--aptopt={option}" for option in carried_options()]
    arguments += [f"--extract-hook={_STATUS}"]
    sources = find_mirrors().source_lines(SUITE)
    run([*CONTAINED, "mmdebstrap", *arguments, SUITE, str(partial), *sources], timeout_s=TIMEOUT_S)
    library = partial / "usr" / "lib" / f"python{PYTHON}"
    runner = partial if architecture is python.OF_THIS_MACHINE else ensure(python.OF_THIS_MACHINE)
    python.compile_all(runner, library, f"/usr/lib/python{PYTHON}")
    partial.rename(tree)
