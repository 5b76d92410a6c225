"""Defines what staging needs of a package manager: finding out what has to be downloaded, and downloading it.

The counterpart of `seam`, which installs what lies there. Nothing here changes what is installed on the machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_CHUNK_BYTES = 1024 * 1024


class SourceError(Exception):
    """Packages cannot be had; ``code`` names the kind of failure, ``remedy`` says what helps."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code, self.remedy = code, remedy


@dataclass(frozen=True)
class Request:
    """Packages at exact versions, with everything they depend on that the machine lacks, and names to be removed.

    A version "" is whichever the package manager would choose. ``again``: they are installed at these
    versions, and come once more. ``loose`` may change as well although they are held: by grapnel.
    """

    packages: Mapping[str, str]
    remove: tuple[str, ...] = ()
    again: bool = False
    loose: tuple[str, ...] = ()


@dataclass(frozen=True)
class Download:
    """One package file; ``digest`` is ``algorithm:hexadecimal``, empty where the manager itself verifies the file."""

    name: str
    uri: str
    size_bytes: int
    digest: str = ""


@dataclass(frozen=True)
class Resolution:
    """What a request comes to: files to fetch, packages that change (the old version, "" for a new one), and go.

    ``obsoleted`` are packages that go because a new one says that it takes their place.
    """

    downloads: tuple[Download, ...] = ()
    install: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    remove: Mapping[str, str] = field(default_factory=dict)
    obsoleted: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(one.size_bytes for one in self.downloads)


@dataclass(frozen=True)
class Header:
    """What a package file says of itself; ``depends`` are the names that it needs, as facts have them."""

    file: str
    name: str
    version: str
    source: str
    depends: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One transaction of two: its files by the names of their packages, and the names that go."""

    files: Mapping[str, str]
    remove: tuple[str, ...]


@dataclass(frozen=True)
class Offered:
    """Package files that the machine was given: name and version in each, and what is installed of these names."""

    described: Mapping[str, tuple[str, str]]
    installed: Mapping[str, str]


class PackageSource(Protocol):
    """Where one package manager gets its package files from."""

    def resolve(self, host: Host, request: Request) -> Resolution:
        """Return what a request comes to; changes nothing; raises `SourceError`."""

    def fetch(self, host: Host, request: Request, downloads: Sequence[Download], folder: str, timeout_s: float) -> None:
        """Put the files of a resolved request into a folder, each verified; raises `SourceError`."""

    def find_cached(self, host: Host, name: str, version: str) -> str | None:
        """Return the file of a package that the manager keeps in its own cache, None when it has none."""

    def is_newer(self, host: Host, version: str, than: str) -> bool:
        """Tell whether a version of a package is newer than another one."""

    def choose(self, host: Host, request: Request, files: Offered, scratch: str) -> tuple[str, ...]:
        """Return the files that a request needs on this machine, of those that it was given; raises `SourceError`.

        Those of the request's own packages are always among them.
        """

    def read_headers(self, host: Host, files: Sequence[str]) -> tuple[Header, ...]:
        """Return what package files say of themselves; raises `SourceError`."""

    def with_files(self, files: Sequence[str]) -> PackageSource:
        """Return this source with package files that the machine was given besides; raises `SourceError`."""

    def for_any_machine(self, host: Host, scratch: str) -> PackageSource:
        """Return this source as machines see it that have less than this one, as far as the package manager can."""

    def list_files(self, host: Host, file: str) -> tuple[str, ...]:
        """Return the absolute paths of what a package file holds; raises `SourceError`."""

    def rehearse_return(self, host: Host, there: Step, back: Step, scratch: str) -> tuple[set[str], set[str]]:
        """Return the names that would be installed and removed by a step after another one; raises `PackageError`."""

    def unpack(self, host: Host, file: str, folder: str) -> None:
        """Unpack a package file below a folder, without running anything of it; raises `SourceError`."""


def has_digest(path: Path, digest: str) -> bool:
    """Tell whether a file is there and has a digest."""
    algorithm, _, expected = digest.partition(":")
    try:
        return file_digest(path, algorithm.lower()) == expected.lower()
    except (OSError, ValueError):
        return False


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the digest of a file; raises OSError, and ValueError for an algorithm that is not known."""
    found = hashlib.new(algorithm)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
