"""Provides promtool, which checks alert rules, and Prometheus, from Debian's package without installing it.

The package would install 96 MB and twelve others on the machine; each program takes 48 MB in the cache and needs only
libc. apt fetches it from this machine's mirrors, and verifies it with their signed lists.

    python3 -m lab.tools.promtool [promtool|prometheus]    print its path, downloading it if it is not in the cache
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from lab.machine.command import run
from lab.machine.errors import CommandError, LabError
from lab.machine.folders import cache_dir
from lab.machine.lock import locked

PACKAGE = "prometheus"
PROMTOOL, PROMETHEUS = "promtool", "prometheus"
FETCH_TIMEOUT_S = 600.0
PROBE_TIMEOUT_S = 60.0
# As root: apt's own user may not write to a folder in the cache.
APT = ("apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=120")


def find(program: str = PROMTOOL) -> Path | None:
    """Return the machine's own program, else the cached one; None if there is neither. Downloads nothing."""
    on_path = shutil.which(program)
    if on_path is not None:
        return Path(on_path)
    kept = _kept(program)
    return kept if kept.is_file() else None


def ensure(program: str = PROMTOOL) -> Path:
    """Return a program of the package, downloading it if necessary (19 MB). Raises LabError."""
    found = find(program)
    if found is not None:
        return found
    kept = _kept(program)
    with locked(kept.with_suffix(".lock"), wait_s=FETCH_TIMEOUT_S):
        if not kept.is_file():
            _fetch(kept)
    return kept


def _kept(program: str) -> Path:
    return cache_dir() / "promtool" / program


def _fetch(kept: Path) -> None:
    """Unpack the program into a temporary folder, check that it runs, and rename it."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=kept.parent) as folder:
        _download(Path(folder))
        debs = list(Path(folder).glob(f"{PACKAGE}_*.deb"))
        if len(debs) != 1:
            raise LabError(f"apt-get gave {len(debs)} packages {PACKAGE} instead of one")
        unpack(debs[0], Path(folder), kept.name)
        program = Path(folder) / "usr/bin" / kept.name
        run([str(program), "--version"], timeout_s=PROBE_TIMEOUT_S)
        program.rename(kept)


def _download(folder: Path) -> None:
    """Make apt download the package; missing or outdated lists are fetched first."""
    download = ["env", "-C", str(folder), *APT, "download", PACKAGE]
    try:
        run(download, timeout_s=FETCH_TIMEOUT_S)
    except CommandError:
        run([*APT, "update"], timeout_s=FETCH_TIMEOUT_S)
        run(download, timeout_s=FETCH_TIMEOUT_S)


def unpack(deb: Path, folder: Path, program: str = PROMTOOL) -> None:
    """Unpack one program alone from a package. Raises CommandError for a package without it."""
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" "$3"'
    run(["sh", "-c", script, "sh", str(deb), str(folder), f"./usr/bin/{program}"], timeout_s=PROBE_TIMEOUT_S)


if __name__ == "__main__":
    try:
        print(ensure(*sys.argv[1:2]))
    except LabError as error:
        sys.exit(f"lab: {error}")
