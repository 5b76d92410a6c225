"""Decides whether a reboot would bring a node to a target, and reboots a node whose driver change waits for it.

A run never reboots by itself: it ends, and whoever took the node out of service has it rebooted and goes on. A node
that comes up alone stays out of service until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import installed_kernels, running_kernel
from ansible_collections.grapnel.node.plugins.module_utils.driver.module_files import find_module
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    NEEDS_REBOOT,
    is_reboot_due,
    read_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.unit import is_active, only_run
from ansible_collections.grapnel.node.plugins.module_utils.machine.reboot import why_not_reboot
from ansible_collections.grapnel.node.plugins.module_utils.preflight.kernels import find_default, newest_first

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_REBOOT_TIMEOUT_S = 60.0


def other_kernel(host: Host, target: Target) -> str:
    """Return why the running kernel cannot load the target's module, empty when it can or none is to be loaded."""
    change, running = target.change, running_kernel(host)
    if not change.module or not change.has_module or running in change.kernels:
        return ""
    if find_module(host, running) == (change.version, change.flavour):
        return ""
    return f"kernel {running} runs, and the module is for {', '.join(change.kernels)}"


def reboot_obstacle(host: Host, target: Target, *, is_allowed: bool, reboots: int = 0) -> str:
    """Return why a node is not rebooted for a target, empty when it may be; ``reboots`` are those it had already."""
    if not is_allowed:
        return "only a reboot helps, and the declaration does not allow one: declare driver.reboot: true"
    if reboots:
        return "the node was rebooted for that already"
    change = target.change
    upcoming = find_default(host, newest_first(installed_kernels(host)))
    if change.module and change.has_module and upcoming not in change.kernels:
        return f"a reboot would not help: it starts kernel {upcoming}, for which there is no module"
    return ""


def reboot(host: Host) -> str:
    """Reboot the node for the driver change that waits for it; raises `StoreError` where nothing waits, or work runs.

    It looks again at what may have changed since: whether the GPUs are out of service, and whether somebody uses one.
    """
    with only_run(host):
        record = read_run(host)
        if record is None or record.state != NEEDS_REBOOT or is_active(host):
            raise StoreError("no driver change waits for a reboot of this node")
        if not is_reboot_due(host, record):
            again = f"{record.verb} {record.change}".strip()
            raise StoreError(f"the node was rebooted already: run `{again}`, which goes on from there")
        if obstacle := why_not_reboot(host):
            raise StoreError(f"not rebooted: {obstacle}")
        done = host.run(["systemctl", "--no-block", "reboot"], _REBOOT_TIMEOUT_S)
    if done.return_code:
        raise StoreError(f"systemctl reboot: {done.complaints}")
    return record.reboot
