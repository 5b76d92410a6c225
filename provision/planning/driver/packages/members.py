"""Tells which packages belong to a driver, and what version they must share.

A distribution builds its driver from sources of known names. NVIDIA's repositories hold packages from many small
sources whose names are published nowhere, next to packages that only sound alike (nvidia-container-toolkit,
nvidia-fs). There a package belongs when its name says so and its version is a driver's.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from provision.planning.driver.versions.scheme import Version

# 580.126.09 and 555.42, never 1.18.1 (container toolkit), 2.27.3 (nvidia-fs) or 2025.06.11 (nvlsm).
_DRIVER_VERSION: Final = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?")


@dataclass(frozen=True)
class Members:
    """Which packages are the driver's: those of ``sources``, and those whose name matches one of ``names``.

    Packages of ``exact`` sources need each other at one full version, all others at one upstream version.
    Installed packages whose name matches one of ``replaced``, or that are of ``others``, are another driver's, and go
    when this one comes.
    """

    sources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    others: tuple[Members, ...] = ()

    def has(self, name: str, source: str, version: Version) -> bool:
        """Tell whether a package at a version is part of a driver."""
        if source in self.sources:
            return True
        if not _matches(name, self.names):
            return False
        return _DRIVER_VERSION.fullmatch(version.upstream) is not None

    def level(self, source: str, version: Version) -> str:
        """Return the version that a package must have in common with its neighbours."""
        return version.source if source in self.exact else version.upstream

    def replaces(self, name: str, source: str, version: Version) -> bool:
        """Tell whether an installed package has to go unless this driver brings it too."""
        return _matches(name, self.replaced) or any(each.has(name, source, version) for each in self.others)


@functools.lru_cache(maxsize=8192)  # asked for every version of a package, of which there may be many
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
