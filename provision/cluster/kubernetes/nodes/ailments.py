"""Reads from a Node what is wrong with its GPUs, as its own node daemon says. Pure.

It never decides whether a node is changed: it tells a failure of the hardware from one of an upgrade. A Node that lies
about it hides its own failure only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.base.printable import printable

if TYPE_CHECKING:
    from provision.cluster.kubernetes.objects.nodes import Node

GPUS_HEALTHY: Final = "GPUsHealthy"  # docs/contracts/node-state
_LONGEST: Final = 300


def ailment_of(node: Node) -> str:
    """Return what a Node says is wrong with its GPUs, empty where it says nothing, or does not know."""
    for condition in node.status.conditions:
        if condition.type == GPUS_HEALTHY:
            said = condition.message or condition.reason or "a GPU cannot be used"
            return printable(said, limit=_LONGEST) if condition.status == "False" else ""
    return ""
