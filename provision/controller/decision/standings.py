"""Says how each node of a stack stands, of what the controller knows. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from provision.controller.decision.choice import is_out_of_reach
from provision.controller.stacks.derive import NodeIs, Stands

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from provision.controller.decision.attempts import Attempts
    from provision.controller.decision.choice import Order
    from provision.rollout.interface.standing import Standing

NEXT = "its turn comes with the next round"
DRIFTED = "its daemon has found that it is not as declared (grapnel-node drift)"
SILENT = "its kubelet is not heard of: nothing can be done on it"


def stands(
    order: Order,
    busy: Collection[str],
    standing: Standing | None,
    attempts: Attempts,
    unmarked: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[str, Stands]:
    """Return how the nodes of an order stand, of a stack that was deleted those that are left.

    ``busy`` are those that rounds are about now, ``unmarked`` those that are done, and why that cannot be written.
    """
    if order.stack.is_going:
        return {name: _leaves(name, order, busy, standing, attempts) for name in sorted(order.left)}
    return {name: _stands(name, order, busy, standing, attempts, unmarked=unmarked) for name in order.members}


def _leaves(name: str, order: Order, busy: Collection[str], standing: Standing | None, attempts: Attempts) -> Stands:
    if standing is not None and (waits := standing.waiting.get(name) or standing.stop):
        return Stands(NodeIs.CHANGING if name in standing.out else NodeIs.WAITING, waits)
    if name in busy:
        return _looked_at(name, order, standing, attempts)
    if is_out_of_reach(order.members[name]):
        return Stands(NodeIs.FAILED, SILENT)
    return _as_tried(name, order, attempts)


def _stands(
    name: str,
    order: Order,
    busy: Collection[str],
    standing: Standing | None,
    attempts: Attempts,
    *,
    unmarked: Mapping[str, str],
) -> Stands:
    node, target = order.members[name], order.targets[name]
    if standing is not None and name in standing.out:
        return Stands(NodeIs.CHANGING, standing.waiting.get(name, ""))
    if target.is_barred:
        return Stands(NodeIs.FAILED, "" if node.record is None else node.record.complaint)
    if node.problem:
        return Stands(NodeIs.FAILED, node.problem)
    if not (target.is_outstanding or node.is_drifted):
        return Stands(NodeIs.AS_DECLARED)
    waits = "" if standing is None or name not in busy else standing.waiting.get(name, "")  # else it takes no part
    if standing is not None and (reason := waits or standing.stop):
        return Stands(NodeIs.WAITING, reason)
    if name in busy:
        return _looked_at(name, order, standing, attempts)
    if name in unmarked:
        return Stands(NodeIs.FAILED, unmarked[name])
    if is_out_of_reach(node):
        return Stands(NodeIs.FAILED, SILENT)
    return _as_tried(name, order, attempts)


def _looked_at(name: str, order: Order, standing: Standing | None, attempts: Attempts) -> Stands:
    """Return how a node stands that a round is about: why it was not as declared holds until there is another why."""
    reason = attempts.reason(name, order.targets[name].key) if standing is None else ""
    return Stands(NodeIs.CHANGING, reason)


def _as_tried(name: str, order: Order, attempts: Attempts) -> Stands:
    """Return how the last try has left a node that nothing is done about now."""
    key = order.targets[name].key
    reason = attempts.reason(name, key)
    if not reason:
        doubts = order.targets[name].doubt or (DRIFTED if order.members[name].is_drifted else "")
        return Stands(NodeIs.WAITING, f"{doubts}: {NEXT}" if doubts else NEXT)
    if attempts.is_waiting(name, key):
        return Stands(NodeIs.WAITING, reason, is_left=True)
    return Stands(NodeIs.FAILED, reason)
