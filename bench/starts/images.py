"""Two container images: a small one, and one with as many libraries as a scientific Python stack has.

Each library is a real one of its own name, because ``ldconfig`` opens them all. Kept in the cache; a container gets a
fresh overlay over its image, as an engine's snapshotter gives it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir, content_key
from tests.runtime_hook.containers import BUSYBOX, MULTIARCH
from tests.runtime_hook.drivertree import compile_library

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES = {"small": 73, "big": 1585}  # names in the loader cache: Debian's minbase; with 900 packages of libraries
_FOLDERS = ("bin", "dev", "etc/ld.so.conf.d", "lib64", "proc", "sys", "tmp", "usr/bin", "usr/lib64", MULTIARCH)
_PLAIN_SONAME = b"libbench0000.so.1"
_FORMAT = "2"


def image(name: str) -> Path:
    """Return the root of an image, made now if the cache has none."""
    folder = cache_dir() / "bench" / f"image-{name}-{content_key(_FORMAT, str(ENTRIES[name]), MULTIARCH)}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".image-", dir=folder.parent) as scratch:
            made = Path(scratch) / "root"
            _fill(made, ENTRIES[name])
            made.rename(folder)
    return folder


def _fill(root: Path, entries: int) -> None:
    for path in _FOLDERS:
        (root / path).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    (root / "etc/debian_version").write_text("12.11\n")
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    (root / "etc/ld.so.conf.d/multiarch.conf").write_text(f"/{MULTIARCH}\n")
    with tempfile.NamedTemporaryFile(dir=root) as plain:
        compile_library(Path(plain.name), _PLAIN_SONAME.decode())
        template = Path(plain.name).read_bytes()
    for number in range(1, entries + 1):
        soname = f"libbench{number:04d}.so.1"
        real = root / MULTIARCH / f"{soname}.0.{number}"
        real.write_bytes(template.replace(_PLAIN_SONAME, soname.encode()))
        (root / MULTIARCH / soname).symlink_to(real.name)
    subprocess.run(["ldconfig", "-r", str(root)], check=True)


@contextmanager
def fresh_root(lower: Path, folder: Path) -> Iterator[Path]:
    """Mount a writable layer over an image, below a folder; taken away afterwards with all that was written."""
    layers = Path(tempfile.mkdtemp(prefix="layers-", dir=folder))
    for name in ("upper", "work", "merged"):
        (layers / name).mkdir()
    options = f"lowerdir={lower},upperdir={layers / 'upper'},workdir={layers / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", str(layers / "merged")], check=True)
    try:
        yield layers / "merged"
    finally:
        subprocess.run(["umount", str(layers / "merged")], check=True)
        shutil.rmtree(layers)


def written(root: Path) -> tuple[int, int]:
    """Return how many files a container's layer holds, and their bytes."""
    files = [Path(folder, name) for folder, _, names in os.walk(root.parent / "upper") for name in names]
    return len(files), sum(path.lstat().st_size for path in files)
