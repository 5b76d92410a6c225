"""What the machine itself must have: root, Debian's packages, a Python that is new enough."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from lab.machine.requirements import PACKAGES_FILE
from tasks.errors import SetupError
from tasks.stage import Stage, run_in_turn

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.progress import Progress

OLDEST_PYTHON = (3, 11)
APT_ENV = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


def require_machine() -> None:
    """Say in one line why this machine cannot run the laboratory, if it cannot."""
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(f"Python {found} is too old (3.11 or newer is needed: make PYTHON=/path/to/python3)")
    if not sys.platform.startswith("linux"):
        raise SetupError(f"{sys.platform} is not Linux (the laboratory needs Linux with systemd-nspawn)")
    if os.geteuid() != 0:
        raise SetupError("not root (the laboratory boots nodes and mounts trees: run it with sudo)")
    if shutil.which("apt-get") is None:
        raise SetupError("apt-get is missing (the laboratory is made for Debian 12 or newer)")


def wanted_packages(listing: Path = PACKAGES_FILE) -> list[str]:
    """Return the names in ``listing``: one a line, ``#`` begins a comment."""
    lines = (line.split("#", 1)[0].strip() for line in listing.read_text().splitlines())
    return [line for line in lines if line]


def missing_packages(names: list[str]) -> list[str]:
    """Return those of ``names`` that dpkg does not have installed."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names]
    found = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    installed = {line.split()[0] for line in found.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def install_packages(progress: Progress) -> None:
    """Install what is missing through the machine's own apt sources; nothing to do is silent and takes no network."""
    missing = missing_packages(wanted_packages())
    if not missing:
        progress.say("host packages: all there")
        return
    apt = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=120")
    install = (*apt, "install", "-y", "--no-install-recommends", *missing)
    run_in_turn(
        [
            Stage("apt-get update", (*apt, "update"), APT_ENV),
            Stage(f"install {len(missing)} host packages", install, APT_ENV),
        ],
        progress,
    )
