"""Provides the finished package folder of a suite: built once, kept in the cache, queried for packages."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab import trees
from lab.bundle.contents import CONTENTS, DEMO
from lab.bundle.fetch import Fetcher
from lab.bundle.repository import PUBLIC_KEY, publish
from lab.machine.errors import PackageError
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import find_mirrors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lab.bundle.contents import Request

BUILD_TIMEOUT_S = 1800.0
FORMAT_VERSION = "1"
FOR_DEMO = "GRAPNEL_LAB_FOR_DEMO"
HEADERS = re.compile(r"linux-headers-(?P<release>\d.*-amd64)")
FIELD = re.compile(r"^(Package|Version|Filename): (.*)$", re.MULTILINE)
EPOCH_AND_REVISION = re.compile(r"^(?:\d+:)?(?P<upstream>.+?)(?:-[^-]*)?$")


@dataclass(frozen=True)
class Package:
    """One .deb file of the folder."""

    name: str
    version: str
    path: Path

    @property
    def upstream_version(self) -> str:
        """The version without epoch and Debian revision: NVIDIA's own number for driver packages."""
        match = EPOCH_AND_REVISION.match(self.version)
        return match["upstream"] if match else self.version


@dataclass(frozen=True)
class Bundle:
    """The package folder of one suite."""

    suite: str
    folder: Path

    @property
    def public_key(self) -> Path:
        """The armoured key that signs its InRelease."""
        return self.folder / PUBLIC_KEY

    def packages(self) -> list[Package]:
        """Return all packages in the folder's ``Packages`` index."""
        text = (self.folder / "Packages").read_text()
        stanzas = [dict(FIELD.findall(stanza)) for stanza in text.split("\n\n") if stanza.strip()]
        return [Package(stanza["Package"], stanza["Version"], self.folder / stanza["Filename"]) for stanza in stanzas]

    def find(self, wanted: str) -> Package:
        """Return the package ``name`` or ``name=version``; ``PackageError`` if there is not exactly one."""
        name, _, version = wanted.partition("=")
        found = [p for p in self.packages() if p.name == name and version in ("", p.version)]
        if len(found) == 1:
            return found[0]
        versions = ", ".join(p.version for p in found) or "none"
        hint = f"versions: {versions}; packages are listed in lab/bundle/contents.py"
        raise PackageError(f"{self.folder}: {wanted} is not exactly one package", hint=hint)

    def driver_versions(self) -> list[str]:
        """Return the upstream driver versions in the folder, oldest first."""
        found = {p.upstream_version for p in self.packages() if p.name == "libnvidia-ml1"}
        return sorted(found, key=lambda version: tuple(map(int, version.split("."))))

    @property
    def kernel_release(self) -> str:
        """The kernel whose headers are in the folder: the suite's newest when the folder was built."""
        found = [match["release"] for p in self.packages() if (match := HEADERS.fullmatch(p.name))]
        if len(found) != 1:
            named = ", ".join(found) or "none"
            raise PackageError(f"{self.folder}: headers of exactly one kernel are needed", hint=f"found: {named}")
        return found[0]


def deb_paths(suite: str, names: Sequence[str]) -> list[Path]:
    """Return the .deb files of packages (``name`` or ``name=version``) in the folder of ``suite``."""
    bundle = ensure(suite)
    return [bundle.find(name).path for name in names]


def ensure(suite: str) -> Bundle:
    """Return the package folder of ``suite``, downloading it if it is not in the cache.

    With ``FOR_DEMO`` in the environment, what is downloaded is only what the demo needs.
    """
    tree = trees.ensure(suite)
    folder = _place(suite, tree, CONTENTS[suite])
    requests = DEMO if suite == "trixie" and FOR_DEMO in os.environ and not folder.is_dir() else CONTENTS[suite]
    folder = _place(suite, tree, requests)
    if not folder.is_dir():
        with locked(folder.parent / "build.lock", wait_s=BUILD_TIMEOUT_S):
            if not folder.is_dir():
                _build(suite, tree, folder, requests)
    return Bundle(suite, folder)


def _place(suite: str, tree: Path, requests: Sequence[Request]) -> Path:
    key = content_key(FORMAT_VERSION, tree.name, *map(repr, requests))
    return cache_dir() / "bundle" / f"{suite}-{key}"


def _build(suite: str, tree: Path, folder: Path, requests: Sequence[Request]) -> None:
    """Fill a temporary folder, then rename it; downloads stay in a pool, so that the next build is quick."""
    home = folder.parent
    pool = home / "pool"
    fetcher = Fetcher(suite, tree, home / f"apt-{suite}", pool)
    fetcher.prepare(find_mirrors(), {r.from_suite for r in requests if r.from_suite})
    names = {name for request in requests for name in fetcher.fetch(request)}
    partial = home / f".{folder.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o755)
    for name in sorted(names):
        os.link(pool / name, partial / name)
    publish(partial, suite, home / "key")
    shutil.rmtree(fetcher.root)
    partial.rename(folder)
