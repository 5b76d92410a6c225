"""Defines a release of a distribution: its package manager, and which sources of driver packages it has."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from provision.planning.architecture import X86_64, Architecture
from provision.planning.driver.versions.scheme import VersionScheme, scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.declaration.spec.model import DriverSource
    from provision.planning.driver.packages.package_set import PackageSet
    from provision.planning.driver.terms import Manager


@dataclass(frozen=True, eq=False)
class Distribution:
    """One release on one architecture, a constant; ``version_id`` is that part of os-release's which tells them apart.

    ``repository`` is its folder in NVIDIA's repository. ``offers`` gives the package names of a branch by source.
    ``other_drivers`` are source packages of drivers that cannot be installed beside these.
    """

    id: str
    version_id: str
    codename: str
    manager: Manager
    repository: str
    offers: Mapping[DriverSource, Callable[[int], PackageSet]]
    other_drivers: tuple[str, ...] = ()
    architecture: Architecture = X86_64

    @property
    def scheme(self) -> VersionScheme:
        """Return how its package manager's versions are read."""
        return scheme_of(self.manager)

    @property
    def label(self) -> str:
        """Return the release for people; of x86_64 nothing is said."""
        release = f"{self.id} {self.version_id}" + (f" ({self.codename})" if self.codename else "")
        return release if self.architecture is X86_64 else f"{release} on {self.architecture.name}"

    @property
    def bundle_name(self) -> str:
        """Return what a bundle calls it: releases that share packages have one name."""
        release = f"{self.id}-{self.version_id}"
        return release if self.architecture is X86_64 else f"{release}-{self.architecture.name}"

    def is_other_driver_source(self, source: str) -> bool:
        """Tell whether a source package is a driver that does not go together with this distribution's main one."""
        return any(fnmatchcase(source, pattern) for pattern in self.other_drivers)
