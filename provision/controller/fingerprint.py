"""Says in a few characters what a node is brought to: where two are the same, nothing has to be done. Pure.

It has everything that the plan of a node depends on and that is known without asking the node: the parts of the
declaration that are about machines, what of grapnel is deployed, and the boot and kernel that its kubelet reports. What
a node finds of its own drift comes as a condition, and is not part of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from provision.spec.model import Rollout, Scheduler, Tenancy

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode
    from provision.payload.model import Payload
    from provision.spec.model import StackSpec

_LENGTH: Final = 24  # hexadecimal digits: no two that a cluster ever has are the same


def of_stack(spec: StackSpec, payload: Payload) -> bytes:
    """Return what is the same for all nodes of a stack; without how they are upgraded, and what tenants have."""
    of_hooks = Tenancy(namespaces=spec.tenancy.namespaces)
    about_machines = msgspec.structs.replace(spec, rollout=Rollout(), scheduler=Scheduler(), tenancy=of_hooks)
    archives = [payload.hook.digest, payload.driver.digest, *sorted(each.digest for each in payload.node.values())]
    encoder = msgspec.json.Encoder(order="sorted")
    return hashlib.sha256(encoder.encode([about_machines, archives, payload.unit, payload.units])).digest()


def of_try(stack: bytes, node: SeenNode) -> str:
    """Return what a node has failed with. Another boot is no reason to try it again: an upgrade may reboot it."""
    return hashlib.sha256(stack + node.uid.encode()).hexdigest()[:_LENGTH]


def of_node(stack: bytes, node: SeenNode) -> str:
    """Return the fingerprint of a node that is as ``stack`` declares."""
    text = f"{node.uid}\n{node.boot}\n{node.kernel}"
    return hashlib.sha256(stack + text.encode()).hexdigest()[:_LENGTH]
