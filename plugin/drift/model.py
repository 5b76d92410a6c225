"""What a node is to be, what it is, and in which ways these differ. Values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
