"""Renders the pin that keeps a driver: apt preferences over whole sources (apt_preferences(5)).

A priority above 1000 lets apt go back to an older version as well. Every binary package of the sources is pinned, not
only the installed ones: what is installed later by hand then fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.driver.closure import DriverPackages

PIN_PATH = "/etc/apt/preferences.d/00-grapnel-nvidia"
PIN_PRIORITY = 1001


def render_pin(driver: DriverPackages, sources: Sequence[str]) -> str:
    """Return the preferences file for one driver."""
    return "\n".join(
        [
            "# managed by grapnel: the next apply puts back what is changed here",
            f"# packages: {' '.join(driver.names)}",
            "",
            f"Package: {' '.join(f'src:{source}' for source in sources)}",
            f"Pin: version {_pattern(driver)}",
            f"Pin-Priority: {PIN_PRIORITY}",
            "",
        ]
    )


def _pattern(driver: DriverPackages) -> str:
    """Return the version's pattern: rebuilt binaries (``+b1``) have a version of their own."""
    exact = {package.version for package in driver.packages} == {driver.version}
    return driver.version if exact else f"/^{_escape(driver.version)}(\\+b[0-9]+)?$/"


def _escape(version: str) -> str:
    """Return a version for an extended regular expression."""
    return "".join(f"\\{sign}" if sign in ".+" else sign for sign in version)
