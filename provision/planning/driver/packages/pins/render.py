"""Renders the files that keep a driver's packages at their version, whatever the package manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.driver.packages.pins.apt import PIN_PATH, render_pin
from provision.planning.driver.terms import Manager
from provision.planning.node_plan import FileContent

if TYPE_CHECKING:
    from provision.planning.driver.packages.closure import DriverPackages
    from provision.planning.driver.packages.members import Members


def render(manager: Manager, driver: DriverPackages, members: Members) -> tuple[FileContent, ...]:
    """Return the files of our own; dnf and zypper have none, the node edits theirs when it holds packages."""
    if manager is not Manager.APT:
        return ()
    return (FileContent(PIN_PATH, render_pin(driver, members)),)
