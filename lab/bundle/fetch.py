"""Downloads packages with a separate apt state: the machine's mirrors, a tree's dpkg status."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.command import CONTAINED, run
from lab.machine.mirrors import Mirrors, carried_options

if TYPE_CHECKING:
    from lab.bundle.contents import Request

TIMEOUT_S = 900.0
FOLDERS = (
    "etc/apt/apt.conf.d",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "var/lib/apt/lists/partial",
    "var/cache/apt",
)
DRIVER_SOURCES = "src:nvidia-graphics-drivers src:nvidia-open-gpu-kernel-modules"
# 'address' file-name size hash
PRINTED_URI = re.compile(r"^'[^']+' (?P<name>\S+\.deb) \d+ ", re.MULTILINE)


@dataclass(frozen=True)
class Fetcher:
    """An apt for ``suite`` that resolves dependencies against ``tree`` and keeps its downloads in ``pool``.

    ``root`` holds apt's own configuration, lists and caches.
    """

    suite: str
    tree: Path
    root: Path
    pool: Path

    def prepare(self, mirrors: Mirrors, foreign: set[str]) -> None:
        """Write the configuration and fetch the lists; packages from ``foreign`` suites are only used if pinned."""
        shutil.rmtree(self.root, ignore_errors=True)
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        (self.pool / "partial").mkdir(parents=True, exist_ok=True)
        (self.root / "apt.conf").write_text("\n".join(self._options()) + "\n")
        lines = [line for suite in (self.suite, *sorted(foreign)) for line in mirrors.source_lines(suite)]
        (self.root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
        pins = [_pin("*", f"release n={suite}*", -1) for suite in sorted(foreign)]
        (self.root / "etc/apt/preferences.d/99-foreign").write_text("\n".join(pins))
        self._apt("update")

    def fetch(self, request: Request) -> list[str]:
        """Download ``request`` and its missing dependencies; return the file names in the pool."""
        pin = self.root / "etc/apt/preferences.d/00-driver"
        version = request.driver_version
        pin.write_text(_pin(DRIVER_SOURCES, f"version {version}*", 1001) if version else "")
        install = ("--reinstall", "install", *request.packages)
        names = PRINTED_URI.findall(
            self._apt("-qq", "--print-uris", "-o", f"Dir::Cache::Archives={self.root}/none/", *install)
        )
        self._apt("--download-only", *install)
        return [_file_name(name) for name in names]

    def _options(self) -> list[str]:
        return [
            f'Dir "{self.root}";',
            f'Dir::State::status "{self.tree}/var/lib/dpkg/status";',
            f'Dir::Cache::Archives "{self.pool}/";',
            'Dir::Bin::methods "/usr/lib/apt/methods";',
            'APT::Architecture "amd64";',
            'APT::Install-Recommends "false";',
            'APT::Sandbox::User "root";',
            'Acquire::Languages "none";',
            *carried_options(),
        ]

    def _apt(self, *arguments: str) -> str:
        """APT_CONFIG is read before everything else, so the machine's own apt.conf.d is never read."""
        environment = {"APT_CONFIG": str(self.root / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
        command = [*CONTAINED, "apt-get", "-y", "-q", *arguments]
        return run(command, timeout_s=TIMEOUT_S, env=environment).stdout


def _pin(packages: str, pin: str, priority: int) -> str:
    return f"Package: {packages}\nPin: {pin}\nPin-Priority: {priority}\n"


def _file_name(printed: str) -> str:
    """Apt prints and stores the same name (an epoch's colon as %3a)."""
    return Path(printed).name
