"""Defines how one source of packages names the parts of one driver branch. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.spec.model import Capability, Companion
    from provision.planning.driver.packages.members import Members
    from provision.planning.driver.terms import Flavour


@dataclass(frozen=True)
class ModulePackages:
    """Packages of one flavour of the kernel module.

    ``built`` compile it with DKMS, where it is called ``dkms``. ``ready`` hold it compiled and signed by the
    distribution, ``ready_loose`` likewise at a version of their own. All names may have ``{kernel}`` (a kernel's
    release) or ``{variant}`` (what follows its last hyphen), and then stand for one package of each. ``meta`` are
    patterns of metapackages that bring this flavour.
    """

    built: tuple[str, ...] = ()
    dkms: str | None = None
    ready: tuple[str, ...] = ()
    ready_loose: tuple[str, ...] = ()
    meta: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompanionPackages:
    """What stands for one companion: packages at the driver's version, ``loose`` ones at a version of their own.

    ``services`` are systemd units to be enabled, ``modules`` kernel modules to be loaded.
    """

    packages: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class PackageSet:
    """The packages of one driver branch in one source of packages.

    A name in ``user_space`` may be two, ``first|second``: the first that the node's package manager knows.
    ``streams`` are dnf's module streams, one for each flavour (user space alone has one too: its packages are in
    the module). ``evidence`` says where the names were read.
    """

    evidence: str
    members: Members
    user_space: Mapping[Capability, tuple[str, ...]]
    modules: Mapping[Flavour, ModulePackages] = field(default_factory=dict)
    companions: Mapping[Companion, CompanionPackages] = field(default_factory=dict)
    streams: Mapping[Flavour, str] = field(default_factory=dict)
