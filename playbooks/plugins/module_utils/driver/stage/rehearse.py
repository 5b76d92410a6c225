"""Simulates both transactions of a staged set, there and back, with its own files and without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding, failure
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import versions_of
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Step

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import Work
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import Rehearsal


def rehearse(work: Work) -> list[Finding]:
    """Raise `StageError` unless a set leads to its change; returns what is wrong with the way back."""
    files = work.package_files()
    there = _rehearse_there(work, files)
    by_name = {name: file for (name, _), file in versions_of(work.host, work.manager, files).items()}
    try:
        return _rehearse_back(work, Step(by_name, there.remove))
    except PackageError as error:
        return [_no_way_back(str(error))]


def _rehearse_there(work: Work, files: tuple[str, ...]) -> Rehearsal:
    host, manager, change = work.host, work.manager, work.change
    try:
        rehearsal = manager.rehearse(host, Transaction(files, change.remove, work.scratch))
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


def _rehearse_back(work: Work, there: Step) -> list[Finding]:
    host, back = work.host, store.read_change(work.host, work.before)
    files = versions_of(host, work.manager, work.package_files_back())
    by_name = {name: file for (name, _), file in files.items()}
    if set(back.names) - set(by_name):
        return []  # told by name when the files were collected
    installed, removed = work.source.rehearse_return(host, there, Step(by_name, back.remove), work.scratch)
    foreign = sorted(removed - set(back.remove) | installed - set(back.names))
    return [_no_way_back(f"it would change {', '.join(foreign)} as well")] if foreign else []


def _no_way_back(why: str) -> Finding:
    return Finding(
        "no-way-back",
        f"the way back does not work when it is rehearsed: {why}",
        "without it a failed change cannot be undone by itself: look at the packages named, or go on and know that",
        "warning",
    )
