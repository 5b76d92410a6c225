"""Says which step of the roles carries out an item of a plan, for how long it took last time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.node_plan import Action, Role

if TYPE_CHECKING:
    from provision.node_plan import Item

_STEPS: Final = {
    (Role.DRIVER, Action.DEPLOY): "driver: Install the program that changes the driver",
    (Role.DRIVER, Action.STAGE): "driver: Download and build the driver beforehand",
    (Role.RUNTIME, Action.INSTALL): "runtime: Install the engine's packages",
    (Role.RUNTIME, Action.DEPLOY): "runtime: Install the hook, and the units that keep the driver inventory up to date",
    (Role.NODE_DAEMON, Action.DEPLOY): "node_daemon: Install the daemon from its archive",
    (Role.NODE_DAEMON, Action.DIVIDE): "node_daemon: Divide the GPUs",
    (Role.NODE_DAEMON, Action.SET): "node_daemon: Set the GPUs",
    (Role.TUNING, Action.REBOOT): "tuning: Reboot the node for what its kernel is started with",
}
_OTHERS: Final = {
    Role.DRIVER: "driver: Swap the driver",  # one transaction
    Role.RUNTIME: "runtime: Apply the configuration",
    Role.TUNING: "tuning: Make settings of the kernel",
    Role.KUBELET: "kubelet: Change the kubelet's settings",
    Role.NODE_DAEMON: "node_daemon: Apply the configuration",
}
STEPS: Final = frozenset({*_STEPS.values(), *_OTHERS.values()})


def step_of(item: Item) -> str:
    """Return the name of the step that carries out an item, as runs are written down: ``role: task``."""
    return _STEPS.get((item.role, item.action)) or _OTHERS[item.role]
