"""Looks at a staged set again: whether it is whole, and whether the node is still the one that it was made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import (
    moved_packages,
    new_kernels,
    read_found,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import read_json
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import Finding, unreadable
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

FINDINGS = "findings.json"
_AGAIN = "stage the change again"


def check_set(host: Host, manager: PackageManager, identifier: str) -> tuple[Finding, ...]:
    """Return everything that is wrong with a set now; one with an error must not be used."""
    try:
        change = store.require_staged(host, identifier)
    except store.StoreError as error:
        return (Finding("not-staged", str(error), _AGAIN),)
    return (*drift_findings(host, manager, identifier, change), *kept_findings(host, identifier))


def kept_findings(host: Host, identifier: str) -> tuple[Finding, ...]:
    """Return what was known to be wrong when the set was sealed."""
    kept = read_json(host, f"{store.staged_folder(identifier)}/{FINDINGS}") or []
    return tuple(Finding(one["code"], one["message"], one["remedy"], one["severity"]) for one in kept)


def drift_findings(host: Host, manager: PackageManager, identifier: str, change: DriverChange) -> tuple[Finding, ...]:
    """Return how the node differs from the one that a set was made for."""
    then = read_found(host, identifier)
    kernels = tuple(
        Finding(
            "kernel-not-staged",
            f"the kernel {kernel} was installed after the change was staged, which has no module for it",
            "plan again: the new plan names that kernel, and is staged with a module for it",
        )
        for kernel in new_kernels(host, change, then)
    )
    try:
        moved = moved_packages(host, manager.installed, change, then)
    except PackageError as error:
        return (*kernels, unreadable(error).finding)
    if not moved:
        return kernels
    names = ", ".join(str(one) for one in moved)
    text = f"packages were changed after the change was staged: {names}"
    return (*kernels, Finding("stale-way-back", text, _AGAIN))
