"""Which devices are offered under which resource name.

So far every GPU is offered whole, under one name. Slices (MIG) and shared GPUs are further kinds of
offer and belong here as well; how a container gets one is `allocation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.inventory import Inventory


@dataclass(frozen=True)
class Offer:
    """One line of the device list: `device_id` is unique on the node, over all resources."""

    device_id: str
    is_healthy: bool
    numa_node: int | None


def whole_gpus(inventory: Inventory) -> tuple[Offer, ...]:
    """Return one offer per GPU, named by its UUID."""
    return tuple(
        Offer(device.gpu.uuid, is_healthy=device.is_healthy, numa_node=device.numa_node) for device in inventory.devices
    )
