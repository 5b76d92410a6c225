"""Says how each node of a stack stands, of what the controller knows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.stacks.derive import NodeIs, Stands

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from provision.controller.attempts import Attempts
    from provision.controller.choice import Order
    from provision.rollout.standing import Standing

NEXT = "its turn comes with the next round"


def stands(order: Order, busy: Collection[str], standing: Standing | None, attempts: Attempts) -> Mapping[str, Stands]:
    """Return how the nodes of an order stand; ``busy`` are those that rounds are about now."""
    return {name: _stands(name, order, busy, standing, attempts) for name in order.members}


def _stands(name: str, order: Order, busy: Collection[str], standing: Standing | None, attempts: Attempts) -> Stands:
    node, target = order.members[name], order.targets[name]
    if standing is not None and name in standing.out:
        return Stands(NodeIs.CHANGING, standing.waiting.get(name, ""))
    if target.is_barred:
        return Stands(NodeIs.FAILED, "" if node.record is None else node.record.complaint)
    if node.problem:
        return Stands(NodeIs.FAILED, node.problem)
    if not target.is_outstanding:
        return Stands(NodeIs.AS_DECLARED)
    if standing is not None and (reason := standing.waiting.get(name) or standing.stop):
        return Stands(NodeIs.WAITING, reason)
    if name in busy:
        return Stands(NodeIs.CHANGING)
    if reason := attempts.reason(name, target.key):
        return Stands(NodeIs.FAILED, reason)
    return Stands(NodeIs.WAITING, NEXT)
