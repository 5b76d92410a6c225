"""Says which nodes of a stack are to have their former driver again, since somebody has asked for that. Pure.

`grapnel rollback NODE` writes it into the record of the node, which may write that itself: it sends back that node, and
no other. Until that is done, the request stays where it is: whoever leads carries it out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.controller.decision.attempts import key_of
from provision.controller.decision.choice import is_out_of_reach

if TYPE_CHECKING:
    from provision.controller.decision.attempts import Attempts
    from provision.controller.decision.choice import Order, Target
    from provision.controller.nodes import SeenNode


def with_way_back(order: Order, attempts: Attempts, now_s: float) -> Order:
    """Return the order with the nodes that go back; what they are due for otherwise waits for that."""
    wanted = {name: node for name, node in order.members.items() if is_wanted(node)}
    if not wanted:
        return order
    targets = {name: _target(order.targets[name], node) for name, node in wanted.items()}
    back = frozenset(
        name
        for name, node in wanted.items()
        if not is_out_of_reach(node) and attempts.is_due(name, targets[name].key, now_s)
    )
    rest = order.without(wanted)
    return replace(rest, targets={**order.targets, **targets}, due=rest.due | back, back=back)


def is_wanted(node: SeenNode) -> bool:
    """Tell whether somebody wants a node to have its former driver again."""
    return node.record is not None and bool(node.record.back_for)


def _target(target: Target, node: SeenNode) -> Target:
    """Return what follows for a node that goes back: its tries are others than those of its declaration.

    What was asked before the record changed the last time is not what is asked now.
    """
    assert node.record is not None  # noqa: S101 - of those that are wanted
    wanted = f"back for {node.record.back_for} from {node.record.since.isoformat()}"
    return replace(target, wanted=wanted, key=key_of(node, wanted), is_outstanding=True, is_barred=False)
