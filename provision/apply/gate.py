"""Decides which plans may be applied. Pure.

A node is refused as a whole and before anything is changed on it. Nodes whose GPUs have to be free go through
``provision.rollout``, which drains them first; this is the last check behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.apply.model import Failure, Status
from provision.planning.node_plan import Action, Disruption, Role
from provision.planning.planner.drivers.holders import holders

if TYPE_CHECKING:
    from provision.apply.model import Assessment
    from provision.declaration.fleet.facts.node import DeviceHolder
    from provision.planning.node_plan import Item, NodePlan

ENDS_WORK: Final = (Disruption.DRAIN, Disruption.REBOOT)
_NAMED = 3


def find_obstacle(plan: NodePlan) -> Failure | None:
    """Return why a plan cannot be applied whatever runs on the node, None when it can be."""
    if plan.problems:
        return Failure(Status.REFUSED, "; ".join(problem.message for problem in plan.problems))
    return None


def needs_drain(plan: NodePlan) -> bool:
    """Tell whether the node has to be out of service for its plan."""
    return any(item.disruption in ENDS_WORK and not item.deferred for item in plan.items)


def will_need_drain(plan: NodePlan) -> bool:
    """Tell whether the node has to be out of service for its plan, now or after what comes first."""
    return any(item.disruption in ENDS_WORK for item in plan.items)


def changes_over(plan: NodePlan) -> bool:
    """Tell whether the plan has the node give its GPUs to pods by another interface: while it serves, in its turn."""
    return any(item.disruption is Disruption.CHANGE_OVER for item in plan.items)


def needs_turn(plan: NodePlan) -> bool:
    """Tell whether the node goes through the rollout: it is out of service meanwhile, or changes over in its turn."""
    return will_need_drain(plan) or changes_over(plan)


def needs_staging(plan: NodePlan) -> bool:
    """Tell whether a driver or an engine has to be staged before the node is taken out of service for it."""
    driver = plan.roles.driver
    return stages_engine(plan) or (driver is not None and not driver.driver_swap)


def exchanges_engine(plan: NodePlan) -> bool:
    """Tell whether the node leaves service for another version of its engine, and not for a restart alone."""
    return any(
        item.role is Role.RUNTIME and item.disruption in ENDS_WORK and item.action is not Action.RESTART
        for item in plan.items
    )


def stages_engine(plan: NodePlan) -> bool:
    """Tell whether the packages of an engine have to lie ready before that, and do not yet."""
    return any(item.role is Role.RUNTIME and item.disruption in ENDS_WORK and item.deferred for item in plan.items)


def find_refusal(assessment: Assessment) -> Failure | None:
    """Return why a node's plan is not applied now, None when it may be: the last check before it is."""
    plan = assessment.plan
    ending = [item for item in plan.items if item.disruption in ENDS_WORK and not item.deferred]
    held_by = holders(assessment.facts)
    if ending and held_by:
        return find_obstacle(plan) or Failure(Status.REFUSED, _ends_work(ending[0], held_by))
    return find_obstacle(plan)


def _ends_work(item: Item, held_by: tuple[DeviceHolder, ...]) -> str:
    need = "the node has to reboot" if item.disruption is Disruption.REBOOT else "the GPUs have to be free"
    named = ", ".join(f"{holder.command} ({holder.pid})" for holder in held_by[:_NAMED])
    more = f" and {len(held_by) - _NAMED} more" if len(held_by) > _NAMED else ""
    return f"to {item.action} {item.target}, {need}, but GPUs are held by {named}{more}"
