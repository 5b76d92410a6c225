"""Says what a node has to do with undoing the last upgrade: the one to the driver that is declared. Pure.

The declaration says which upgrade is meant, not the dates of records: a node may write its own, and could choose for
the others with one date. What its record says of itself decides about that node alone.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from provision.rollout.model import ChangeKind, Phase

if TYPE_CHECKING:
    from provision.declaration.spec.model import Driver
    from provision.rollout.model import Record


_NOT_OF_VERSIONS: Final = (ChangeKind.REBOOT, ChangeKind.INTERFACE)  # of which the versions of a record tell nothing


class Part(Enum):
    """What a node has to do with it."""

    NONE = auto()  # it was not changed by that upgrade
    TO_RETURN = auto()  # it was changed, or is on its way, or failed
    RETURNED = auto()  # it has its former driver again


def part_of(driver: Driver, record: Record | None) -> Part:
    """Return what a node has to do with undoing the upgrade to its declared ``driver``.

    An upgrade that kept the version is not told from none: its record says nothing of what changed. What changed after
    an upgrade and kept the driver (a reboot, MIG devices, the interface) is not undone, and hides no upgrade.
    """
    if record is None:
        return Part.NONE
    if record.phase is Phase.RETURNED and record.kind is ChangeKind.DRIVER:
        if is_declared(driver, record.target):
            return Part.RETURNED
        return Part.NONE if record.is_returning else part_of(driver, record.last_upgrade)  # it was not touched
    if not record.phase.is_in_service and record.kind not in _NOT_OF_VERSIONS:
        return Part.TO_RETURN
    before = record.before_upgrade
    is_there, was_there = is_declared(driver, record.target), is_declared(driver, before)
    if is_there and record.target != before:
        return Part.TO_RETURN
    return Part.RETURNED if was_there and not is_there else Part.NONE


def is_declared(driver: Driver, version: str) -> bool:
    """Tell whether a version is the declared one, or of the declared branch; no driver is never."""
    if not driver.enabled or not version:
        return False
    if driver.version is not None:
        return version == driver.version
    return driver.branch is not None and version.startswith(f"{driver.branch}.")
