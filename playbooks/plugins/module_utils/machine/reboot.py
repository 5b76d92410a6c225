"""Looks at a node before and after a reboot: which boot it is in, who would lose work, whether it has started up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.daemon import program as node_daemon
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import UNIT, boot_id
from ansible_collections.grapnel.node.plugins.module_utils.kernel import services as driver_services
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import find_users

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_START_TIMEOUT_S = 600.0
_QUERY_TIMEOUT_S = 20.0
_NOT_RUNNING = ("inactive", "failed", "unknown", "")


def read_boot(host: Host) -> str:
    """Return the name of the boot that the node is in."""
    return boot_id(host).strip()


def why_not_reboot(host: Host) -> str:
    """Return what a reboot now would end that was not asked to leave, empty where there is nothing."""
    if node_daemon.is_installed(host) and not node_daemon.is_released(host):
        return "the GPUs are in service; take them out of it first: grapnel-node release"
    users = find_users(host, {*driver_services.running_own_services(host)}).processes
    return f"the driver is in use: {'; '.join(users)}" if users else ""


def is_driver_changing(host: Host) -> bool:
    """Tell whether a driver change runs: a reboot would cut it short."""
    done = host.run(["systemctl", "is-active", UNIT], _QUERY_TIMEOUT_S)
    return done.stdout.strip() not in _NOT_RUNNING


def wait_until_started(host: Host) -> str:
    """Wait until systemd has done what belongs to the start of the node, and return what it calls the outcome.

    A unit that has failed is no reason to fail here: what matters of the node is verified afterwards.
    """
    done = host.run(["systemctl", "is-system-running", "--wait"], _START_TIMEOUT_S)
    return "starting" if done.is_timed_out else done.stdout.strip() or "unknown"
