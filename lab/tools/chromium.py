"""Provides a headless Chromium for the tests of pages, from Debian's packages without installing them.

apt says what the machine lacks of `chromium-headless-shell`, with fonts that look the same everywhere, fetches it
from this machine's mirrors, and verifies it with their signed lists. Everything is unpacked into one folder of the
cache: 65 MB to fetch, 260 MB there.

    python3 -m lab.tools.chromium    print the path of its folder, downloading it if it is not in the cache
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.machine.command import run
from lab.machine.errors import CommandError, LabError
from lab.machine.folders import cache_dir
from lab.machine.lock import locked

PACKAGE = "chromium-headless-shell"
FONTS = ("fonts-liberation", "fonts-dejavu-core")
PROGRAM = "usr/lib/chromium/chromium-headless-shell"
FETCH_TIMEOUT_S = 900.0
PROBE_TIMEOUT_S = 60.0
APT = ("apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=120")
_FONTCONFIG = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>{fonts}</dir>
  <cachedir>{cache}</cachedir>
  <alias binding="same"><family>sans</family><prefer><family>Liberation Sans</family></prefer></alias>
  <alias binding="same"><family>system-ui</family><prefer><family>Liberation Sans</family></prefer></alias>
  <alias binding="same"><family>sans-serif</family><prefer><family>Liberation Sans</family></prefer></alias>
  <alias binding="same"><family>ui-monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
</fontconfig>
"""


@dataclass(frozen=True)
class Chromium:
    """An unpacked Chromium below ``folder``: what is run, and the variables that it needs."""

    folder: Path

    @property
    def program(self) -> Path:
        """The executable."""
        return self.folder / PROGRAM

    @property
    def environment(self) -> dict[str, str]:
        """Where its libraries and its one font are; nothing else of this process is passed on."""
        libraries = [self.folder / "usr/lib/x86_64-linux-gnu", self.folder / "usr/lib/x86_64-linux-gnu/pulseaudio"]
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "FONTCONFIG_FILE": str(self.folder / "fonts.conf"),
        }


def find() -> Chromium | None:
    """Return the one in the cache; None if there is none. Downloads nothing."""
    kept = Chromium(_kept())
    return kept if kept.program.is_file() else None


def ensure() -> Chromium:
    """Return it, downloading it if necessary. Raises LabError."""
    found = find()
    if found is not None:
        return found
    kept = _kept()
    with locked(kept.with_suffix(".lock"), wait_s=FETCH_TIMEOUT_S):
        if find() is None:
            _fetch(kept)
    return Chromium(kept)


def _kept() -> Path:
    return cache_dir() / "chromium" / "tree"


def _fetch(kept: Path) -> None:
    """Unpack into a temporary folder, check that it runs, and rename it."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=kept.parent) as folder:
        debs, tree = Path(folder, "debs"), Path(folder, "tree")
        debs.mkdir()
        try:
            _download(debs)
        except CommandError:
            run([*APT, "update"], timeout_s=FETCH_TIMEOUT_S)  # missing or outdated lists
            _download(debs)
        for deb in sorted(debs.glob("*.deb")):
            run(["dpkg-deb", "--extract", str(deb), str(tree)], timeout_s=PROBE_TIMEOUT_S)
        for unused in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(tree / unused, ignore_errors=True)
        _configure_fonts(tree, kept)
        found = Chromium(tree)
        run([str(found.program), "--version"], timeout_s=PROBE_TIMEOUT_S, env=found.environment)
        tree.rename(kept)


def _download(folder: Path) -> None:
    """Download what this machine lacks of the packages."""
    simulated = run(
        [*APT, "--simulate", "--no-install-recommends", "install", PACKAGE, *FONTS], timeout_s=FETCH_TIMEOUT_S
    )
    lacked = {line.split()[1] for line in simulated.stdout.splitlines() if line.startswith("Inst ")}
    run(
        ["env", "-C", str(folder), *APT, "download", *sorted({*lacked, PACKAGE, "chromium-common", *FONTS})],
        timeout_s=FETCH_TIMEOUT_S,
    )


def _configure_fonts(tree: Path, kept: Path) -> None:
    text = _FONTCONFIG.format(fonts=kept / "usr/share/fonts", cache=kept / "fontcache")
    tree.joinpath("fonts.conf").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        print(ensure().folder)
    except LabError as error:
        sys.exit(f"lab: {error}")
