"""Says what the runs are: a swap to a staged change, the way back from it, the removal of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.before.origin import (
    remember_origin,
    removal_target,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.initramfs import rebuild
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import is_begun
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.loadable import require_loadable
from ansible_collections.grapnel.node.plugins.module_utils.driver.reboot import other_kernel, reboot_obstacle
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    FORWARD,
    QUARANTINED,
    RunRecord,
    change_to_undo,
    read_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import (
    StoreError,
    advance,
    before_folder,
    current_change,
    forget,
    has_origin,
    read_change,
    require_staged,
    retreat,
    staged_folder,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.check import drift_findings
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap import steps
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.run import BACK, REMOVE, SWAP, Work
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import StepError
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import forward_target, way_back_target
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import loaded_version, version_on_disk

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

MODULE = "nvidia"


def plan_work(node: Node, verb: str, identifier: str = "") -> Work:
    """Return what a run of a verb is to do; raises `StoreError` where the node is not prepared for it."""
    former = read_run(node.host)
    if verb == SWAP:
        _require_no_other(former, verb, identifier)
        return _swap(node, identifier)
    if verb == BACK:
        return _back(node, former)
    _require_no_other(former, verb, "")
    if former is not None and former.state == QUARANTINED and not has_origin(node.host):
        raise StoreError(
            f"`{former.verb}` left the first driver of this node half-way: run `back` first, then `remove`"
        )
    return _remove(node, is_continued=former is not None and former.is_open)


def _require_no_other(former: RunRecord | None, verb: str, identifier: str) -> None:
    """Raise `StoreError` when another run was cut short: half of two changes is nothing that anybody has prepared."""
    if former is not None and former.is_open and (former.verb, former.change) != (verb, identifier):
        begun = f"{former.verb} {former.change}".strip()
        raise StoreError(f"`{begun}` was cut short on this node: run `{begun}` again to finish it, or `back`")


def _swap(node: Node, identifier: str) -> Work:
    host, folder = node.host, staged_folder(identifier)
    change = require_staged(host, identifier)
    _require_manager(node, change)
    target = forward_target(host, folder, change, node.manager.suffix)
    is_fresh = not is_begun(host, identifier)  # as it is before this run says that it is about this change

    def check() -> None:
        way_back = way_back_target(host, folder, node.manager.suffix)
        if is_fresh:
            _require_as_staged(node, identifier, change)
            _require_kernel(node, target, may_reboot=change.reboot)
        _check(node, target, way_back, may_reboot=change.reboot)

    def adopt(direction: str) -> str:
        if direction == FORWARD:
            remember_origin(host, folder)
            advance(host, identifier)
        else:
            retreat(host, identifier)
        return identifier

    def back() -> Target:
        way_back = way_back_target(host, folder, node.manager.suffix)
        _require_former_module(host, change, way_back)
        return way_back

    return Work(SWAP, identifier, target, check, lambda: rebuild(host), adopt, back, may_reboot=change.reboot)


def _back(node: Node, former: RunRecord | None) -> Work:
    """Go back from a swap that did not come to its end, else from the change that the node runs."""
    host = node.host
    if former is not None and former.is_open and former.verb == REMOVE:
        raise StoreError("`remove` was cut short on this node: run `remove` again to finish it")
    identifier = change_to_undo(host)
    if not identifier:
        raise StoreError("there is nothing to go back from: no driver change was swapped in on this node")
    change, folder = require_staged(host, identifier), staged_folder(identifier)
    target = way_back_target(host, folder, node.manager.suffix)
    _require_manager(node, target.change)

    def adopt(direction: str) -> str:  # noqa: ARG001 - both directions lead back here
        retreat(host, identifier)
        return before_folder(folder)

    def back() -> Target:
        _require_former_module(host, change, target)
        return target

    def check() -> None:
        way_back = back()
        if former is None or not former.is_open:
            _require_kernel(node, way_back, may_reboot=change.reboot)
        _check(node, way_back, may_reboot=change.reboot)

    return Work(BACK, identifier, target, check, lambda: rebuild(host), adopt, back, may_reboot=change.reboot)


def _remove(node: Node, *, is_continued: bool) -> Work:
    host = node.host
    target = removal_target(host, node.manager.name, is_continued=is_continued)

    def adopt(direction: str) -> str:  # noqa: ARG001 - there is one
        forget(host)
        return "no driver"

    def check() -> None:
        _check(node, target, may_reboot=may_reboot)

    may_reboot = _current_allows_reboot(host)
    return Work(REMOVE, "", target, check, lambda: rebuild(host), adopt, lambda: target, may_reboot=may_reboot)


def _current_allows_reboot(host: Host) -> bool:
    """Tell whether the change that is removed could have rebooted the node as well."""
    current = _current(host)
    return current is not None and current.reboot


def current_dkms(host: Host) -> str:
    """Return the name by which DKMS has the module of the node's driver, empty where it has none."""
    current = _current(host)
    return (current.dkms or "") if current is not None else ""


def _current(host: Host) -> DriverChange | None:
    identifier = current_change(host)
    try:
        return None if identifier is None else read_change(host, staged_folder(identifier))
    except StoreError:
        return None


def _require_former_module(host: Host, change: DriverChange, way_back: Target) -> None:
    """Raise `StoreError` if something else than grapnel has replaced the module that the way back needs.

    Going back would end with the libraries of one driver beside the module of another.
    """
    version = way_back.change.module
    if not version or change.has_module or loaded_version(host, MODULE) == version:
        return
    on_disk = version_on_disk(host, MODULE)
    if on_disk != version:
        raise StoreError(
            f"kernel module {version} would have to be loaded again, and {on_disk or 'none'} is on disk: "
            "driver.kernelModule is none, so whatever provides the module has to put it there"
        )


def _require_manager(node: Node, change: DriverChange) -> None:
    if change.manager != node.manager.name:
        raise StoreError(f"the driver change is for {change.manager}, this node has {node.manager.name}")


def _require_as_staged(node: Node, identifier: str, change: DriverChange) -> None:
    """Raise `StepError` if the node is no longer the one that the set was made for."""
    findings = drift_findings(node.host, node.manager, identifier, change)
    if findings:
        raise StepError("; ".join(f"{one.code}: {one.message} ({one.remedy})" for one in findings))


def _require_kernel(node: Node, target: Target, *, may_reboot: bool) -> None:
    """Raise `StepError` where the module is for another kernel than the one that runs, and no boot leads to that."""
    reason = other_kernel(node.host, target)
    obstacle = reboot_obstacle(node.host, target, is_allowed=may_reboot) if reason else ""
    if obstacle:
        raise StepError(f"{reason}; {obstacle}")


def _check(node: Node, *targets: Target, may_reboot: bool) -> None:
    """Raise, before anything is disturbed, if the first target cannot be reached as things are."""
    for target in targets:
        steps.require_prebuilt(target)
    require_loadable(node.host, targets[0])
    node.manager.wait(node.host, node.clock)
    steps.require_free(node, targets[0], may_reboot=may_reboot)
    steps.rehearse(node, targets[0])
