"""Finds what is wrong with packages: holds, locks, what was left halfway, what would upgrade them, the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DriverSource
from provision.planning.driver.preflight import codes
from provision.planning.driver.preflight.situation import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.planning.driver.preflight.codes import Finding
    from provision.planning.driver.preflight.situation import Situation

_PARTS: Final = ("driver", "hook", "node")


def find_packages(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with packages and their manager."""
    manager = situation.facts.package_manager
    if manager.locked_by is not None:
        yield codes.LOCKED.found(f"{manager.name} is in use by {manager.locked_by.command or 'another process'}")
    if manager.interrupted:
        halfway = sorted(name for name, package in situation.facts.packages.items() if package.status != "installed")
        which = f": {some(halfway)}" if halfway else ""
        yield codes.INTERRUPTED.found(f"an installation with {manager.name} was interrupted{which}")
    if manager.lists_error is not None and not situation.is_staged:
        yield codes.SOURCES_UNREACHABLE.found(f"{manager.name} could not refresh its lists: {manager.lists_error}")
    yield from _find_held(situation)
    yield from _find_unattended(situation)
    yield from _find_way_back(situation)


def _replaced(situation: Situation) -> dict[str, str]:
    """Return the installed versions that the change replaces, by name."""
    if situation.change is None:
        return {}
    installed = situation.facts.packages
    return {
        wanted.name: installed[wanted.name].version
        for wanted in situation.change.packages
        if wanted.name in installed and installed[wanted.name].version != wanted.version
    }


def _find_held(situation: Situation) -> Iterator[Finding]:
    """Yield holds of others; on a node that grapnel has set up before they are its own, and it renews them."""
    facts = situation.facts
    if facts.driver.current is not None or any(facts.installed_digest(part) for part in _PARTS):
        return
    held = sorted(name for name in _replaced(situation) if facts.packages[name].hold)
    if held:
        yield codes.HELD.found(f"held at another version: {some(held)}")


def _find_unattended(situation: Situation) -> Iterator[Finding]:
    unattended = situation.facts.unattended
    if unattended is not None and unattended.active and not situation.driver.hold:
        yield codes.UNATTENDED.found(f"{unattended.unit} upgrades packages on its own, and the driver is not held")


def _find_way_back(situation: Situation) -> Iterator[Finding]:
    """Yield installed versions that could not be installed again; a staged change has them beside it."""
    if situation.is_staged or situation.driver.source is DriverSource.NONE:
        return
    lost = sorted(
        name
        for name, version in _replaced(situation).items()
        if not any(one.version == version and one.fetchable for one in situation.facts.available.get(name, ()))
    )
    if lost:
        yield codes.NO_WAY_BACK.found(f"no source has the installed version of {some(lost)}")
