"""Looks at a staged set again: whether it is whole, and whether the node is still the one that it was made for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.run_record import is_begun
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import read_json
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.kernels import installed_kernels
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

FOUND = "found.json"  # the node as it was: kernels, and versions of the packages that the change touches
FINDINGS = "findings.json"
_AGAIN = "stage the change again"


def check_set(host: Host, manager: PackageManager, identifier: str) -> tuple[Finding, ...]:
    """Return everything that is wrong with a set now; one with an error must not be used."""
    try:
        change = store.require_staged(host, identifier)
    except store.StoreError as error:
        return (Finding("not-staged", str(error), _AGAIN),)
    found = read_json(host, f"{store.staged_folder(identifier)}/{FOUND}") or {}
    return (*_kernels(host, change, found), *_packages(host, manager, change, found), *kept_findings(host, identifier))


def is_out_of_date(host: Host, manager: PackageManager, identifier: str) -> bool:
    """Tell whether a complete set has to be made again, because the node is no longer the one that it was made for.

    Not so once its swap has begun: what it keeps is the way back from there. The files of the set are not looked at.
    """
    if is_begun(host, identifier):
        return False
    folder = store.staged_folder(identifier)
    try:
        change = store.read_change(host, folder)
    except store.StoreError:
        return True
    found = read_json(host, f"{folder}/{FOUND}") or {}
    return any(_kernels(host, change, found)) or any(_packages(host, manager, change, found))


def kept_findings(host: Host, identifier: str) -> tuple[Finding, ...]:
    """Return what was known to be wrong when the set was sealed."""
    kept = read_json(host, f"{store.staged_folder(identifier)}/{FINDINGS}") or []
    return tuple(Finding(one["code"], one["message"], one["remedy"], one["severity"]) for one in kept)


def node_as_found(host: Host, manager: PackageManager, names: set[str]) -> dict[str, Any]:
    """Return what `check_set` compares with; raises `PackageError`."""
    versions = {name: one.version for name, one in manager.installed(host, names).items()}
    return {"kernels": installed_kernels(host), "packages": {name: versions.get(name) for name in sorted(names)}}


def _kernels(host: Host, change: DriverChange, found: dict[str, Any]) -> Iterator[Finding]:
    """Report kernels that were installed since: the node may boot one of them next, without a driver."""
    known = {*change.kernels, *found.get("kernels", [])}
    for kernel in installed_kernels(host) if change.has_module else []:
        if kernel not in known:
            yield Finding(
                "kernel-not-staged",
                f"the kernel {kernel} was installed after the change was staged, which has no module for it",
                "plan again: the new plan names that kernel, and is staged with a module for it",
            )


def _packages(host: Host, manager: PackageManager, change: DriverChange, found: dict[str, Any]) -> Iterator[Finding]:
    """Report packages that are neither as they were nor as they shall be: the way back leads somewhere else."""
    before, wanted = dict(found.get("packages", {})), {one.name: one.version for one in change.packages}
    try:
        present = manager.installed(host, before)
    except PackageError as error:
        yield Finding("packages-unreadable", str(error), "repair the package database first")
        return
    moved = []
    for name, old in before.items():
        now = present[name].version if name in present else None
        if now not in (old, wanted.get(name)):
            moved.append(f"{name} ({old or 'not installed'} then, {now or 'not installed'} now)")
    if moved:
        yield Finding(
            "stale-way-back",
            f"packages were changed after the change was staged: {', '.join(moved)}",
            _AGAIN,
        )
