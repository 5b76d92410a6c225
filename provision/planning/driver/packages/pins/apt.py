"""Renders the pin that keeps a driver: apt preferences (apt_preferences(5)).

A priority above 1000 lets apt go back to an older version as well. Where a distribution builds the driver from sources
of its own, every binary package of them is pinned, not only the installed ones: what is installed later by hand then
fits. Elsewhere packages are pinned by name, those with the same version together.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from provision.planning.driver.packages.closure import DriverPackages
    from provision.planning.driver.packages.members import Members
    from provision.planning.driver_change import PackageVersion

PIN_PATH = "/etc/apt/preferences.d/00-grapnel-nvidia"
PIN_PRIORITY = 1001


def render_pin(driver: DriverPackages, members: Members) -> str:
    """Return the preferences file for one driver."""
    lines = [
        "# managed by grapnel: the next apply puts back what is changed here",
        f"# packages: {' '.join(driver.names)}",
        "",
    ]
    stanzas = [] if not members.exact else [_of_sources(driver, members.sources)]
    named = [each for each in driver.packages if not members.exact or not _is_covered(each, driver)]
    return "\n".join(chain(lines, *stanzas, *_by_name(named)))


def _of_sources(driver: DriverPackages, sources: Sequence[str]) -> list[str]:
    return _stanza([f"src:{source}" for source in sources], _pattern(driver))


def _is_covered(package: PackageVersion, driver: DriverPackages) -> bool:
    """Tell whether a package has the version of the sources' pin; a rebuilt binary (``+b1``) has."""
    return package.version == driver.version or package.version.startswith(f"{driver.version}+b")


def _by_name(packages: Iterable[PackageVersion]) -> list[list[str]]:
    alike: dict[str, list[str]] = {}
    for package in packages:
        alike.setdefault(package.version, []).append(package.name)
    return [_stanza(names, version) for version, names in sorted(alike.items())]


def _stanza(packages: Sequence[str], version: str) -> list[str]:
    return [f"Package: {' '.join(packages)}", f"Pin: version {version}", f"Pin-Priority: {PIN_PRIORITY}", ""]


def _pattern(driver: DriverPackages) -> str:
    """Return the version's pattern: rebuilt binaries (``+b1``) have a version of their own."""
    exact = not any(package.version.startswith(f"{driver.version}+b") for package in driver.packages)
    return driver.version if exact else f"/^{_escape(driver.version)}(\\+b[0-9]+)?$/"


def _escape(version: str) -> str:
    """Return a version for an extended regular expression."""
    return "".join(f"\\{sign}" if sign in ".+" else sign for sign in version)
