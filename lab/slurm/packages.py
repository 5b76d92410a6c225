"""Provides Debian's Slurm of a suite as a folder to lay over the suite's tree; fetched once, 9 MB at most, and kept."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from lab import trees
from lab.bundle.contents import Request
from lab.bundle.fetch import Fetcher
from lab.machine.command import run
from lab.machine.errors import PackageError
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import find_mirrors

PACKAGES: Final = ("munge", "slurmctld", "slurmd", "slurm-client")
# What Debian's alternatives would link: the daemons look at what they are called.
PROGRAMS: Final = ("slurmctld", "slurmd", "slurmstepd")
FETCH_TIMEOUT_S: Final = 600.0
UNPACK_TIMEOUT_S: Final = 60.0


def ensure(suite: str) -> Path:
    """Return the folder, fetching and unpacking the packages if it is not in the cache. Raises LabError."""
    tree = trees.ensure(suite)
    folder = cache_dir() / "slurm" / f"{suite}-{content_key(tree.name, *PACKAGES)}"
    if not folder.is_dir():
        with locked(folder.with_name(f"{suite}.lock"), wait_s=FETCH_TIMEOUT_S):
            if not folder.is_dir():
                _build(suite, tree, folder)
    return folder


def _build(suite: str, tree: Path, folder: Path) -> None:
    """Unpack into a temporary folder and rename it: what is there is whole."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as name:
        work = Path(name)
        fetcher = Fetcher(suite, tree, work / "apt", work / "pool")
        fetcher.prepare(find_mirrors(), set())
        for deb in fetcher.fetch(Request(PACKAGES)):
            run(["dpkg-deb", "--extract", str(work / "pool" / deb), str(work / "root")], timeout_s=UNPACK_TIMEOUT_S)
        root = work / "root"
        if (root / "lib").is_dir():  # it would hide the link of the tree that leads to /usr/lib
            shutil.copytree(root / "lib", root / "usr/lib", symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / "lib")
        for program in PROGRAMS:
            if not (root / "usr/sbin" / f"{program}-wlm").is_file():
                raise PackageError(f"Debian's Slurm of {suite} has no {program}-wlm", hint="see lab/slurm/packages.py")
            (root / "usr/sbin" / program).symlink_to(f"{program}-wlm")
        root.chmod(0o755)
        root.rename(folder)
