"""promtool, which reads alert rules as Prometheus does: taken out of Debian's `prometheus`, which is not installed.

The package wants 96 MB and twelve others on the machine; the one program is 48 MB in the cache and needs libc alone.
apt fetches it from the mirrors that this machine has, and holds it against their signed lists.

    python3 -m lab.promtool    print its path, fetched now if the cache has none
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
MEMBER = "./usr/bin/promtool"
FETCH_TIMEOUT_S = 600.0
PROBE_TIMEOUT_S = 60.0
# As root: apt's own user may not write into a folder of the cache.
APT = ("apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=120")


def find() -> Path | None:
    """Return the machine's promtool, else the cache's; None where there is neither. Fetches nothing."""
    on_path = shutil.which("promtool")
    if on_path is not None:
        return Path(on_path)
    kept = _kept()
    return kept if kept.is_file() else None


def ensure() -> Path:
    """Return promtool, fetched now if it is nowhere (19 MB). Raises LabError."""
    found = find()
    if found is not None:
        return found
    kept = _kept()
    with locked(kept.with_suffix(".lock"), wait_s=FETCH_TIMEOUT_S):
        if not kept.is_file():
            _fetch(kept)
    return kept


def _kept() -> Path:
    return cache_dir() / "promtool" / "promtool"


def _fetch(kept: Path) -> None:
    """Unpack the program beside its place, see that it runs, and rename it."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=kept.parent) as room:
        _download(Path(room))
        debs = list(Path(room).glob(f"{PACKAGE}_*.deb"))
        if len(debs) != 1:
            raise LabError(f"apt-get gave {len(debs)} packages {PACKAGE} instead of one")
        unpack(debs[0], Path(room))
        program = Path(room) / MEMBER
        run([str(program), "--version"], timeout_s=PROBE_TIMEOUT_S)
        program.rename(kept)


def _download(room: Path) -> None:
    """Have apt download the package; lists that are missing or old are fetched first, and only then."""
    download = ["env", "-C", str(room), *APT, "download", PACKAGE]
    try:
        run(download, timeout_s=FETCH_TIMEOUT_S)
    except CommandError:
        run([*APT, "update"], timeout_s=FETCH_TIMEOUT_S)
        run(download, timeout_s=FETCH_TIMEOUT_S)


def unpack(deb: Path, room: Path) -> None:
    """Unpack promtool alone out of a package. Raises CommandError for a package without it."""
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" "$3"'
    run(["sh", "-c", script, "sh", str(deb), str(room), MEMBER], timeout_s=PROBE_TIMEOUT_S)


if __name__ == "__main__":
    try:
        print(ensure())
    except LabError as error:
        sys.exit(f"lab: {error}")
