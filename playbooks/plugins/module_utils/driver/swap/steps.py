"""Brings a node to a target, step by step. Each step looks at the node, so it may be repeated after a kill anywhere.

In what order, what is written down about them and what follows a failure is decided by `run`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable

from ansible_collections.grapnel.node.plugins.module_utils.driver.before import restore
from ansible_collections.grapnel.node.plugins.module_utils.driver.before.way_back import put_back
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import NO_DRIVER
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.module_options import has_other_options
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.verify import (
    find_differences,
    held_names,
    loaded_flavour,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.mig import process as mig_process
from ansible_collections.grapnel.node.plugins.module_utils.driver.module_files import (
    allow_builds,
    forbid_builds,
    install_modules,
    missing_archives,
    withdraw_modules,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.reboot import reboot_obstacle
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import SCRATCH
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText, find_changes, swap_in
from ansible_collections.grapnel.node.plugins.module_utils.kernel import exchange as kernel_module
from ansible_collections.grapnel.node.plugins.module_utils.kernel import services as driver_services
from ansible_collections.grapnel.node.plugins.module_utils.kernel.device_nodes import make_nodes, missing_nodes
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import (
    SelinuxError,
    device_nodes,
    restore_labels,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import find_users

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.kernel.device_nodes import MakeNode
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

HOOK = "/usr/lib/grapnel/hook/grapnel-hook"
_HOOK_TIMEOUT_S = 60.0
_SERVICE_TIMEOUT_S = 180.0


class StepError(Exception):
    """A step has failed; the message says why."""


class NeedsRebootError(StepError):
    """The loaded module cannot be unloaded, and nothing but a reboot would change that."""


@dataclass(frozen=True)
class Node:
    """The machine, its package manager, its time, and how device nodes are made.

    ``is_before_release``: the node daemon still has the GPUs, and lets go of them before a swap.
    """

    host: Host
    manager: PackageManager
    clock: Clock = field(default_factory=Clock)
    mknod: MakeNode = os.mknod
    is_before_release: bool = False


Step = Callable[[Node, "Target"], str]  # returns what was done, empty when there was nothing to do


def must_unload(host: Host, target: Target) -> bool:
    """Tell whether a module is loaded that is not the target's, or has other parameters than the target gives it."""
    state, change = kernel_module.read_loaded(host), target.change
    if change.module is None or not state.loaded:
        return False
    if state.version != change.module or has_other_options(host, target):
        return True
    return change.has_module and loaded_flavour(host) not in (None, change.flavour)


def transaction_of(node: Node, target: Target) -> Transaction | None:
    """Return what has to be installed and removed, None when every package is as the target has it."""
    change = target.change
    installed = node.manager.installed(node.host, {*change.names, *change.remove})
    remove = tuple(name for name in change.remove if name in installed)
    wanted = {one.name: one.version for one in change.packages}
    is_whole = all(name in installed and installed[name].is_whole for name in wanted)
    if is_whole and not remove and all(installed[name].version == version for name, version in wanted.items()):
        return None
    return Transaction(target.packages, remove, SCRATCH, purge=target.is_way_back)


def mark(node: Node, target: Target) -> str:
    """Note what was loaded, what ran and how GPUs are cut by MIG, so that whoever comes later can restore it."""
    before = remembering(node)
    mig, unknown = restore.remembered_mig(node.host), ""
    if mig is None and must_unload(node.host, target):
        mig, unknown = mig_process.ask_layout(node.host)
    restore.remember(node.host, before, mig)
    words = [f"loaded: {', '.join(before.modules) or 'none'}", f"running: {', '.join(before.services) or 'none'}"]
    cut = [f"cut by mig: {', '.join(mig)}"] if mig else []
    return "; ".join([*words, *cut, *([f"what mig has cut is not known: {unknown}"] if unknown else [])])


def remembering(node: Node) -> kernel_module.Before:
    """Return what is to be restored: what is loaded and runs now, and what a run that was cut short has noted."""
    state, former = kernel_module.read_loaded(node.host), restore.remembered(node.host)
    return kernel_module.merge(state, former, driver_services.running_services(node.host))


def stop_services(node: Node, target: Target) -> str:
    if not must_unload(node.host, target):
        return ""
    return ", ".join(kernel_module.stop_services(node.host))


def unload(node: Node, target: Target) -> str:
    if not must_unload(node.host, target):
        return ""
    state = kernel_module.read_loaded(node.host)
    try:
        kernel_module.unload_all(node.host, state, node.clock)
    except kernel_module.StuckModuleError as error:
        raise NeedsRebootError(str(error)) from error
    return ", ".join(state.loaded)


def install_packages(node: Node, target: Target) -> str:
    """Carry out the transaction, and see that every kernel has its module then."""
    done = [repair(node), _finish_undone(node, target)]
    transaction = transaction_of(node, target)
    if transaction is not None:
        _exchange_packages(node, target, transaction)
        done.append(f"{len(transaction.files)} files, {len(transaction.remove)} packages removed")
    done += [f"module for {kernel}" for kernel in install_modules(node.host, target)]
    return "; ".join(filter(None, done))


def _exchange_packages(node: Node, target: Target, transaction: Transaction) -> None:
    """Carry the transaction out, without compiling where every kernel has its module already."""
    try:
        if not missing_archives(target):
            forbid_builds(node.host, target)
        withdraw_modules(node.host, target)
        node.manager.apply(node.host, transaction, node.clock)
    finally:
        allow_builds(node.host)


def _finish_undone(node: Node, target: Target) -> str:
    """Finish the transaction that was cut short and is to be undone now; one that fails is undone as it is.

    A package manager learns which files came with a package when all of them are there: from a package that it was
    killed at, the way back would leave libraries that belong to nobody.
    """
    transaction = transaction_of(node, target.undone) if target.undone else None
    if target.undone is None or transaction is None:
        return ""
    with contextlib.suppress(PackageError):
        _exchange_packages(node, target.undone, transaction)
    return "finished what is undone now"


def write_files(node: Node, target: Target) -> str:
    if target.is_way_back:
        return ", ".join(put_back(node.host, target.former))
    wanted = [FileText(one.path, one.content, int(one.mode, 8)) for one in target.change.files]
    changes = find_changes(node.host, wanted)
    if changes:
        swap_in(node.host, changes)
    return ", ".join(change.after.path for change in changes)


def holds_to_change(node: Node, target: Target, installed: Collection[str]) -> tuple[list[str], list[str]]:
    """Return which packages are to be held and which released, where these are ``installed``."""
    change = target.change
    wanted = held_names(target, installed)
    if wanted is None:
        return [], []
    held = node.manager.held(node.host, {*change.names, *change.remove, *target.known})
    # What is not installed any more may still be locked; what somebody else had locked before stays so.
    free = sorted(held - (target.held or frozenset()) if target.is_way_back else held & {*change.remove})
    return sorted(wanted - held), free


def hold(node: Node, target: Target) -> str:
    change = target.change
    installed = node.manager.installed(node.host, {*change.names, *change.remove, *target.known})
    missing, free = holds_to_change(node, target, installed)
    node.manager.hold(node.host, missing)
    node.manager.unhold(node.host, free)
    words = [f"held {len(missing)} packages"] if missing else []
    return "; ".join([*words, *([f"{len(free)} packages are no longer held"] if free else [])])


def load(node: Node, target: Target) -> str:
    """Load the target's module, and the others that were loaded before."""
    version = target.change.module
    if not version:
        return ""
    before = kernel_module.read_loaded(node.host)
    kernel_module.load_all(node.host, restore.remembered(node.host), version)
    after = kernel_module.read_loaded(node.host)
    return ", ".join(name for name in after.loaded if name not in before.loaded)


def make_device_nodes(node: Node, target: Target) -> str:
    """Make the nodes that nobody else has made, and give all of them the label by which containers open them."""
    missing = missing_nodes(node.host) if target.change.module else []
    make_nodes(node.host, missing, node.mknod)
    with contextlib.suppress(SelinuxError):  # a plan tells of nodes with another label, and no swap is worth that
        restore_labels(node.host, device_nodes(node.host))
    return ", ".join(one.path for one in missing)


def restore_mig(node: Node, target: Target) -> str:
    """Cut the GPUs as they were; before any service has them open."""
    if not target.change.module or not restore.remembered_mig(node.host):
        return ""
    made, complaint = mig_process.have_restored(node.host)
    if complaint:
        raise StepError(f"the mig instances cannot be made again: {complaint}")
    return made


def start_services(node: Node, target: Target) -> str:
    """Start what ran before, and enable and start the companions that the change brings."""
    before = restore.remembered(node.host)
    named = target.change.services
    if named:
        _systemctl(node.host, ["enable", *named])
    before_it = driver_services.still_there(node.host, [unit for unit in before.services if unit not in named])
    services = [*before_it, *named] if target.change.version != NO_DRIVER else []
    complaint = driver_services.start(node.host, services)
    if complaint:
        raise StepError(complaint)
    return ", ".join(services)


def refresh_inventory(node: Node, target: Target) -> str:
    """Tell the hook; a node without one has no inventory, and without a driver nothing to tell."""
    if not node.host.path(HOOK).exists() or target.change.version == NO_DRIVER:
        return ""
    done = node.host.run([HOOK, "refresh"], _HOOK_TIMEOUT_S)
    if done.return_code:
        raise StepError(f"grapnel-hook refresh failed: {done.complaints}")
    return HOOK


def verify(node: Node, target: Target) -> str:
    differences = find_differences(node.host, node.manager, target)
    if differences:
        raise StepError("; ".join(differences))
    return target.change.version or "no driver"


def repair(node: Node) -> str:
    """Finish what an interrupted run of the package manager left: nothing can be rehearsed before that."""
    if not node.manager.is_interrupted(node.host):
        return ""
    try:
        forbid_builds(node.host)
        node.manager.repair(node.host, node.clock)
    finally:
        allow_builds(node.host)
    return "finished what an interrupted run of the package manager left"


def require_free(node: Node, target: Target, *, may_reboot: bool = False) -> None:
    """Raise `StepError` if somebody uses the module that is to be unloaded, other than what is stopped for it.

    What no process stands behind is no reason where the node may be rebooted for it.
    """
    if not must_unload(node.host, target):
        return
    released = {DAEMON_UNIT} if node.is_before_release else set()
    users = find_users(node.host, {*driver_services.running_own_services(node.host), *released})
    if not users.lines:
        return
    obstacle = "" if users.processes else reboot_obstacle(node.host, target, is_allowed=may_reboot)
    if users.processes or obstacle:
        raise StepError("; ".join(filter(None, ("the driver is in use: " + "; ".join(users.lines), obstacle))))


def require_prebuilt(target: Target) -> None:
    """Raise `StepError` where a module would have to be compiled while the GPUs are out of service."""
    missing = missing_archives(target)
    if missing and target.change.compile == "stage":
        raise StepError(
            f"no prebuilt module for kernel {', '.join(missing)}, and nothing is compiled out of service: "
            "stage the driver again, or allow `compile: anywhere`"
        )


def rehearse(node: Node, target: Target) -> None:
    """Raise `StepError` if the transaction would change more than the target names."""
    transaction = transaction_of(node, target)
    if transaction is None or node.manager.is_interrupted(node.host):
        return
    try:
        found = node.manager.rehearse(node.host, transaction)
    except PackageError as error:
        raise StepError(str(error)) from error
    wanted = {one.name: one.version for one in target.change.packages}
    others = sorted(set(found.remove) - set(target.change.remove))
    if others:
        raise StepError(f"packages would be removed that the change does not name: {', '.join(others)}")
    wrong = [f"{name} {version}" for name, version in found.install.items() if wanted.get(name, version) != version]
    if wrong:
        raise StepError(f"the staged files are of other versions than the change names: {', '.join(wrong)}")


def _systemctl(host: Host, words: list[str]) -> None:
    done = host.run(["systemctl", *words], _SERVICE_TIMEOUT_S)
    if done.return_code:
        raise StepError(f"systemctl {' '.join(words)}: {done.complaints}")
