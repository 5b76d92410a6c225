"""Names what the rest needs of a package's version, and which kind of version a package manager writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from provision.planning.driver.terms import Manager
from provision.planning.driver.versions.debian import DebianVersion
from provision.planning.driver.versions.rpm import RpmVersion


class Version(Protocol):
    """A version that can be ordered; ``upstream`` is the driver's, ``source`` that of the source package."""

    @property
    def upstream(self) -> str:
        """Return the version that the driver's makers gave it."""

    @property
    def source(self) -> str:
        """Return the version of the source package."""

    def __lt__(self, other: Any, /) -> bool:
        """Tell whether this version is older."""


VersionScheme = Callable[[str], Version]

_SCHEMES: dict[Manager, VersionScheme] = {
    Manager.APT: DebianVersion,
    Manager.DNF: RpmVersion,
    Manager.ZYPPER: RpmVersion,
}


def scheme_of(manager: Manager) -> VersionScheme:
    """Return how a package manager's versions are read."""
    return _SCHEMES[manager]
