"""Says which step of the roles carries out an item of a plan, and how many were carried out. Pure.

What was changed is counted in the items that a plan shows, never in Ansible's tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.planning.node_plan import Action, Role

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from provision.planning.node_plan import Item, NodePlan

_STEPS: Final = {
    (Role.DRIVER, Action.DEPLOY): "driver: Install the program that changes the driver",
    (Role.DRIVER, Action.STAGE): "driver: Download and build the driver beforehand",
    **dict.fromkeys(
        [
            (Role.RUNTIME, action)
            for action in (Action.INSTALL, Action.UPGRADE, Action.DOWNGRADE, Action.HOLD, Action.UNHOLD)
        ],
        "runtime: Install the engine's packages",
    ),
    (Role.RUNTIME, Action.STAGE): "runtime: Have another version of the engine lie ready",
    (Role.RUNTIME, Action.LOAD): "runtime: Let containers use the GPUs that they are given",
    (Role.RUNTIME, Action.SET): "runtime: Let containers use the GPUs that they are given",
    (Role.RUNTIME, Action.DEPLOY): "runtime: Install the hook, and the units that keep the driver inventory up to date",
    (Role.NODE_DAEMON, Action.DEPLOY): "node_daemon: Install the daemon from its archive",
    (Role.NODE_DAEMON, Action.DIVIDE): "node_daemon: Divide the GPUs",
    (Role.NODE_DAEMON, Action.SET): "node_daemon: Set the GPUs",
    (Role.TUNING, Action.REBOOT): "tuning: Reboot the node for what its kernel is started with",
}
_OTHERS: Final = {
    Role.DRIVER: "driver: Change the driver",  # one transaction
    Role.RUNTIME: "runtime: Apply the configuration",
    Role.TUNING: "tuning: Make settings of the kernel",
    Role.KUBELET: "kubelet: Change the kubelet's settings",
    Role.NODE_DAEMON: "node_daemon: Apply the configuration",
}
STEPS: Final = frozenset({*_STEPS.values(), *_OTHERS.values()})


def step_of(item: Item) -> str:
    """Return the name of the step that carries out an item, as `step_name` returns it."""
    return _STEPS.get((item.role, item.action)) or _OTHERS[item.role]


def step_name(task: str, role: str) -> str:
    """Return ``role: task``, without Ansible's collection prefix and repeated names of the role."""
    short = role.rpartition(".")[2]
    words = task.removeprefix(f"{role} : ").removeprefix(f"{short} : ").strip() or "unnamed task"
    return f"{short}: {words}" if short else words


def count_by_steps(items: Iterable[Item], changed: AbstractSet[str]) -> int:
    """Return how many items were carried out by a run that has ended early; ``changed`` are the steps that did so."""
    return sum(not item.deferred and step_of(item) in changed for item in items)


def count_by_plans(before: NodePlan, after: NodePlan) -> int:
    """Return how many items of a plan are over: they are not in the plan that was made from the facts afterwards."""
    left = {(item.role, item.action, item.target) for item in after.items}
    return sum((item.role, item.action, item.target) not in left for item in before.items)
