"""Defines what is asked of a node's package manager for one driver. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.planning.driver.packages.members import Members
    from provision.planning.driver.versions.scheme import VersionScheme


@dataclass(frozen=True)
class PackageRequest:
    """The packages to ask for by name; what they need of the same driver follows from the closure.

    ``loose`` packages have a version line of their own. ``dkms_name`` is what DKMS calls the module, None where the
    module comes compiled or is not managed. ``module_stream`` is dnf's, as ``module:stream``. ``rivals`` are
    patterns of packages that bring another module, and cannot stay beside this one. ``reason`` says why the module
    comes as it does, where there was a choice.
    """

    roots: tuple[str, ...]
    members: Members
    scheme: VersionScheme
    module_roots: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    dkms_name: str | None = None
    module_stream: str | None = None
    services: tuple[str, ...] = ()
    kernel_modules: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    reason: str = ""

    def is_rival(self, name: str) -> bool:
        """Tell whether a package brings another module than the one that is asked for."""
        return any(fnmatchcase(name, pattern) for pattern in self.rivals)
