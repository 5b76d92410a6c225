"""Defines a release of a distribution: its package manager, and which sources of driver packages it has."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from provision.planning.driver.versions.scheme import VersionScheme, scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.declaration.spec.model import DriverSource
    from provision.planning.driver.packages.package_set import PackageSet
    from provision.planning.driver.terms import Manager


@dataclass(frozen=True, eq=False)
class Distribution:
    """One release, a constant; ``version_id`` is the part of os-release's that tells releases apart.

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

    @property
    def scheme(self) -> VersionScheme:
        """Return how its package manager's versions are read."""
        return scheme_of(self.manager)

    @property
    def label(self) -> str:
        """Return the release for people."""
        return f"{self.id} {self.version_id}" + (f" ({self.codename})" if self.codename else "")

    def is_other_driver_source(self, source: str) -> bool:
        """Tell whether a source package is a driver that does not go together with this distribution's main one."""
        return any(fnmatchcase(source, pattern) for pattern in self.other_drivers)
