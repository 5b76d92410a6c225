"""Names who has a GPU open, for the reasons in a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import DeviceHolder, NodeFacts

DAEMON_UNIT = "grapnel-node.service"
_NAMED_HOLDERS = 3


def holders(facts: NodeFacts) -> tuple[DeviceHolder, ...]:
    """Return who has a GPU open and does work with it.

    Not grapnel's own daemon, which lets go when it is told to release, and not the driver's services, which are stopped
    and started again.
    """
    return tuple(each for each in facts.device_holders if each.unit != DAEMON_UNIT and not each.is_driver_service)


def is_offering(facts: NodeFacts) -> bool:
    """Tell whether a node daemon may have given GPUs away: one that is a service, or a pod that has the driver open."""
    return facts.service(DAEMON_UNIT).is_running or any(each.unit == DAEMON_UNIT for each in facts.device_holders)


def describe_holders(facts: NodeFacts) -> str:
    """Return the end of a reason that names the holders, empty when there are none."""
    found = holders(facts)
    if not found:
        return ""
    named = ", ".join(f"{each.command} (pid {each.pid})" for each in found[:_NAMED_HOLDERS])
    more = f" and {len(found) - _NAMED_HOLDERS} more" if len(found) > _NAMED_HOLDERS else ""
    return f"; a GPU is held by {named}{more}"
