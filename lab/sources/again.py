"""Makes an apt source of Debian's engines in other versions: the real packages, with a part of each exchanged.

Maintainer scripts, units and settings are Debian's, so what an upgrade does to a node is what it does to a fleet's.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lab import bundle, golang
from lab.bundle.repository import publish
from lab.golang.programs import NEWEST_CONTAINERD_VERSION
from lab.machine.command import run
from lab.machine.folders import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.nodes import Node

PLACE = "/srv/engines"  # on a node
LIST = "/etc/apt/sources.list.d/engines.sources"
SOURCE = f"""\
Types: deb
URIs: file:{PLACE}
Suites: ./
Signed-By: /srv/bundle/signing-key.asc
"""
SHIM = "#!/bin/sh\necho this shim starts nothing >&2\nexit 1\n"
PACK_TIMEOUT_S = 120.0


def unchanged(_: Path) -> None:
    """Leave a package's files as they are: nothing but its version is another."""


def with_newest_containerd(root: Path) -> None:
    """Put the newest containerd of the lab in the place of a package's own."""
    shutil.rmtree(root / "usr/bin")
    shutil.copytree(golang.containerd(NEWEST_CONTAINERD_VERSION), root / "usr/bin")


def with_idle_containerd(root: Path) -> None:
    """Do the same, with a shim that starts no container: the service runs and answers all the same."""
    with_newest_containerd(root)
    (root / "usr/bin/containerd-shim-runc-v2").write_text(SHIM)


@dataclass(frozen=True)
class Again:
    """A package of a suite in another version; ``change`` is told the folder with its files."""

    name: str
    version: str
    change: Callable[[Path], None] = unchanged


def offer(node: Node, *packages: Again) -> None:
    """Have a running node know a signed source with these packages."""
    place = node.root / PLACE.lstrip("/")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "source"
        folder.mkdir()
        for package in packages:
            _pack(node.spec.suite, package, Path(scratch) / f"{package.name}-{package.version}", folder)
        publish(folder, node.spec.suite, cache_dir() / "bundle" / "key")
        shutil.copytree(folder, place)
    (node.root / LIST.lstrip("/")).write_text(SOURCE)


def take_back(node: Node) -> None:
    """Have the node know that source no more."""
    (node.root / LIST.lstrip("/")).unlink(missing_ok=True)
    shutil.rmtree(node.root / PLACE.lstrip("/"), ignore_errors=True)


def _pack(suite: str, package: Again, root: Path, folder: Path) -> None:
    (original,) = bundle.deb_paths(suite, [package.name])
    run(["dpkg-deb", "-R", str(original), str(root)], timeout_s=PACK_TIMEOUT_S)
    package.change(root)
    (root / "DEBIAN/md5sums").unlink()
    control = root / "DEBIAN/control"
    lines = [line for line in control.read_text().splitlines() if not line.startswith("Built-Using:")]
    control.write_text("".join(f"{_versioned(line, package.version)}\n" for line in lines))
    file = folder / f"{package.name}_{package.version}_amd64.deb"
    run(["dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "-b", str(root), str(file)], timeout_s=PACK_TIMEOUT_S)


def _versioned(line: str, version: str) -> str:
    return f"Version: {version}" if line.startswith("Version:") else line
