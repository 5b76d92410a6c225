"""Says in a few characters what a node is brought to: where two are the same, nothing has to be done. Pure.

It has everything that the plan of a node depends on and that is known without asking the node, in three parts, so that
a difference can be told: what the stack declares about machines, what of grapnel is deployed, and the node's object,
boot and kernel as its kubelet reports them. What a node finds of its own drift comes as a condition, and is not part of
it.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import Rollout, Scheduler, Tenancy

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode
    from provision.declaration.spec.model import StackSpec
    from provision.planning.supply.payload.model import Payload

_LENGTH: Final = 16  # hexadecimal digits of a part: no two that a cluster ever has are the same
_SEPARATOR: Final = "."


class Part(Enum):
    """What two fingerprints may differ in, in their order."""

    DECLARED = "declared"
    DEPLOYED = "deployed"
    MACHINE = "machine"


def of_stack(spec: StackSpec, payload: Payload) -> str:
    """Return what is the same for all nodes of a stack; without how they are upgraded, and what tenants have."""
    return f"{of_spec(spec)}{_SEPARATOR}{of_payload(payload)}"


def of_spec(spec: StackSpec) -> str:
    """Return the part that a stack declares."""
    of_hooks = Tenancy(namespaces=spec.tenancy.namespaces)
    about_machines = msgspec.structs.replace(spec, rollout=Rollout(), scheduler=Scheduler(), tenancy=of_hooks)
    return _digest(msgspec.json.Encoder(order="sorted").encode(about_machines))


def of_payload(payload: Payload) -> str:
    """Return the part that says what of grapnel is deployed."""
    archives = [payload.hook.digest, payload.driver.digest, payload.node.digest]
    return _digest(msgspec.json.Encoder(order="sorted").encode([archives, payload.unit, payload.units]))


def of_try(stack: str, node: SeenNode) -> str:
    """Return what a node has failed with. Another boot is no reason to try it again: an upgrade may reboot it."""
    return _digest(f"{stack}\n{node.uid}".encode())


def of_node(stack: str, node: SeenNode) -> str:
    """Return the fingerprint of a node that is as ``stack`` declares."""
    machine = _digest(f"{node.uid}\n{node.boot}\n{node.kernel}".encode())
    return f"{stack}{_SEPARATOR}{machine}"


def differences(found: str, wanted: str) -> tuple[Part, ...]:
    """Return the parts in which a node's fingerprint is not the wanted one: all of them where it is no fingerprint."""
    former, parts = found.split(_SEPARATOR), wanted.split(_SEPARATOR)
    if len(former) != len(Part):
        return tuple(Part)
    return tuple(part for part, one, other in zip(Part, former, parts, strict=False) if one != other)


def part(stack: str, which: Part) -> str:
    """Return a part of a stack's fingerprint, empty where it has none."""
    parts = stack.split(_SEPARATOR)
    position = list(Part).index(which)
    return parts[position] if position < len(parts) else ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_LENGTH]
