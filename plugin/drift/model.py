"""What a node is to be, what it is, and in which ways these differ. Values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from plugin.base.documents import list_of, member, members, optional, read_versioned, text, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class DriftKind(Enum):
    """What it is that differs: the kinds of `grapnel drift`, and device nodes, which no declaration names."""

    VERSION = "version"
    HOLD = "hold"
    FILE = "file"
    SERVICE = "service"
    MODULE = "kernel-module"
    SOFTWARE = "software"
    DEVICE_NODE = "device-node"


@dataclass(frozen=True)
class DeclaredPackage:
    """A package of the driver at its version; `hold`: whether the package manager is kept from changing it."""

    name: str
    version: str
    hold: bool


@dataclass(frozen=True)
class DeclaredFile:
    """A file of root's; `sha256` of its whole content, `mode` in four octal digits.

    `mark`: where grapnel's mark stands, "start" or "end", in a file at whose edits `grapnel apply` stops, else "".
    """

    path: str
    sha256: str
    mode: str
    mark: str = ""


@dataclass(frozen=True)
class Declared:
    """What `grapnel apply` brought about.

    `node` is the inventory's name, `manager` the package manager's ("apt", "dnf", "zypper"). `units` run, and start at
    boot. `module` is the version of the loaded kernel module, "" where none has to be. `software`: digest by part.
    """

    node: str
    manager: str
    packages: tuple[DeclaredPackage, ...] = ()
    files: tuple[DeclaredFile, ...] = ()
    units: tuple[str, ...] = ()
    module: str = ""
    software: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Package:
    """An installed package. `state`: "installed", or dpkg's word for less. `changed`: when, in seconds since 1970."""

    version: str
    is_held: bool
    state: str = "installed"
    changed: int | None = None


@dataclass(frozen=True)
class File:
    """A file that is there; `owner` is `uid:gid`. `changed`: the later of its content's and its inode's times.

    `is_edited`: what grapnel wrote to it, by its own mark, was changed since; known of files that have a mark.
    """

    sha256: str
    mode: str
    owner: str
    changed: int
    is_edited: bool = False


@dataclass(frozen=True)
class Absent:
    """A file that is not there, or is no file; `changed`: when names in its folder changed last."""

    changed: int | None = None


@dataclass(frozen=True)
class Unit:
    """A unit as systemd says; `changed`: since when it is in its state."""

    active: str
    enabled: str
    changed: int | None = None


@dataclass(frozen=True)
class Found:
    """What was found of everything that is declared. `module` is "" while none is loaded.

    `devices`: device nodes of the GPUs that the driver has, and whether each is there.
    """

    packages: Mapping[str, Package]
    files: Mapping[str, File | Absent]
    units: Mapping[str, Unit]
    module: str
    software: Mapping[str, str]
    devices: Mapping[str, bool]


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it was. `found` and `declared` are versions, digests or states, "" for none.

    `since`: seconds since 1970, None where the node does not tell. `mend`: the command, on the controller but for what
    only the node itself can do.
    """

    kind: DriftKind
    name: str
    found: str
    declared: str
    since: int | None
    mend: str


# Reads what `grapnel apply` brought about (contract `docs/contracts/declared`).

SCHEMA = "grapnel.dev/declared/v1alpha1"
MAX_BYTES = 1 << 20
_MAX_ITEMS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,254}")  # of packages and parts: never an option, never a path
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~^_:-]{0,254}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,250}\.(?:service|timer)")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,4094}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODE = re.compile(r"0[0-7]{3}")
_MARK = re.compile(r"start|end")
_MANAGER = re.compile(r"apt|dnf|zypper")


def parse_declared(content: bytes) -> Declared:
    """Return what a document says; raises ValueError. Keys that are not known are ignored."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    software = member(document, "software", members)
    return Declared(
        node=member(document, "node", text(253)),
        manager=member(document, "manager", _matching(_MANAGER, "apt, dnf or zypper")),
        packages=member(document, "packages", list_of(_package, _MAX_ITEMS)),
        files=member(document, "files", list_of(_file, _MAX_ITEMS)),
        units=member(document, "units", list_of(_matching(_UNIT, "the name of a service or timer"), _MAX_ITEMS)),
        module=member(document, "module", optional(_matching(_VERSION, "a version"))) or "",
        software={_name(part): _digest(digest) for part, digest in software.items()},
    )


def _matching(pattern: re.Pattern[str], words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"must be {words}")
        return value

    return parse


_name = _matching(_NAME, "the name of a package or part")
_digest = _matching(_DIGEST, "a sha-256 digest")


def _package(value: object) -> DeclaredPackage:
    return DeclaredPackage(
        name=member(value, "name", _name),
        version=member(value, "version", _matching(_VERSION, "a version")),
        hold=member(value, "hold", truth),
    )


def _file(value: object) -> DeclaredFile:
    return DeclaredFile(
        path=member(value, "path", _matching(_PATH, "an absolute path")),
        sha256=member(value, "sha256", _digest),
        mode=member(value, "mode", _matching(_MODE, "four octal digits")),
        mark=member(value, "mark", _matching(_MARK, "start or end")) if _has_mark(value) else "",
    )


def _has_mark(value: object) -> bool:
    return isinstance(value, dict) and value.get("mark", "") != ""
