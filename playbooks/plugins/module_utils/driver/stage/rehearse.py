"""Simulates both transactions of a staged set, there and back, with its own files and without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import SCRATCH
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding, failure
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import versions_of
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Step

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager, Rehearsal
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import PackageSource


def rehearse(
    host: Host, manager: PackageManager, source: PackageSource, change: DriverChange, folder: str
) -> list[Finding]:
    """Raise `StageError` unless a set leads to its change; returns what is wrong with the way back."""
    files = store.package_files(host, folder, manager.suffix)
    there = _rehearse_there(host, manager, change, files, folder)
    by_name = {name: file for (name, _), file in versions_of(host, manager, files).items()}
    try:
        return _rehearse_back(host, manager, source, Step(by_name, there.remove), folder)
    except PackageError as error:
        return [_no_way_back(str(error))]


def _rehearse_there(
    host: Host, manager: PackageManager, change: DriverChange, files: tuple[str, ...], folder: str
) -> Rehearsal:
    try:
        rehearsal = manager.rehearse(host, Transaction(files, change.remove, f"{folder}/{SCRATCH}"))
        present = manager.installed(host, change.names)
    except PackageError as error:
        raise _refused(str(error)) from error
    foreign = sorted(set(rehearsal.remove) - set(change.remove))
    if foreign:
        raise _refused(f"{', '.join(foreign)} would be removed, which the change does not name")
    for one in change.packages:
        found = rehearsal.install.get(one.name) or (present[one.name].version if one.name in present else None)
        if found != one.version:
            raise _refused(f"{one.name} would be {found or 'missing'} afterwards, not {one.version}")
    return rehearsal


def _refused(why: str) -> StageError:
    return failure(
        "rehearsal-failed",
        f"the packages cannot be exchanged as planned: {why}",
        "look at the node's other packages, pins and holds; a plan made again with fresh facts may already differ",
    )


def _rehearse_back(
    host: Host, manager: PackageManager, source: PackageSource, there: Step, folder: str
) -> list[Finding]:
    before = store.before_folder(folder)
    back = store.read_change(host, before)
    files = versions_of(host, manager, store.package_files(host, before, manager.suffix))
    by_name = {name: file for (name, _), file in files.items()}
    missing = sorted(set(back.names) - set(by_name))
    if missing:
        return []  # told by name when the files were collected
    step = Step(by_name, back.remove)
    installed, removed = source.rehearse_return(host, there, step, f"{folder}/{SCRATCH}")
    foreign = sorted(removed - set(back.remove) | installed - set(back.names))
    return [_no_way_back(f"it would change {', '.join(foreign)} as well")] if foreign else []


def _no_way_back(why: str) -> Finding:
    return Finding(
        "no-way-back",
        f"the way back does not work when it is rehearsed: {why}",
        "without it a failed change cannot be undone by itself: look at the packages named, or go on and know that",
        "warning",
    )
