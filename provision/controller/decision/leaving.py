"""Says what a stack that was deleted waits for, and what is done about it. Pure.

Nodes that are out of service come back first. Where the stack says `whenDeleted: Remove`, grapnel is taken off all of
its nodes. A node that will not answer is not waited for for ever: one that has left the cluster is none any more, one
that is skipped is let go, and so is one whose kubelet has been silent for long enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.controller.decision.attempts import key_of
from provision.controller.decision.choice import is_out_of_reach

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.controller.decision.attempts import Attempts
    from provision.controller.decision.choice import Order
    from provision.controller.nodes import SeenNode

PATIENCE_S: Final = 3600.0  # after its deletion, with nodes whose kubelet is not heard of


def leave(order: Order, removed: Collection[str], attempts: Attempts, now_s: float, deleted_for_s: float) -> Order:
    """Return what is still to be done about a stack that is going; ``removed`` are UIDs of Nodes that are done with."""
    if order.stack.is_removing:
        order = _removing(order)
        left = {
            name
            for name, node in order.members.items()
            if node.uid not in removed and not is_let_go(node, deleted_for_s)
        }
    else:
        left = {name for name, node in order.members.items() if node.is_in_flight}
    due = frozenset(
        name
        for name in left
        if not is_out_of_reach(order.members[name]) and attempts.is_due(name, order.targets[name].key, now_s)
    )
    return replace(order, due=due, joining=frozenset(), left=frozenset(left))


def _removing(order: Order) -> Order:
    """Return the order with keys of tries that stay the same when a node is rebooted by one."""
    targets = {
        name: replace(target, wanted=target.bar, key=key_of(order.members[name], target.bar))
        for name, target in order.targets.items()
    }
    return replace(order, targets=targets)


def is_let_go(node: SeenNode, deleted_for_s: float) -> bool:
    """Tell whether a node keeps what it has, although its stack wants it removed."""
    return node.is_skipped or (is_out_of_reach(node) and deleted_for_s > PATIENCE_S)
