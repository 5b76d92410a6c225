"""Which devices are offered under which resource name.

So far every GPU is offered whole; GPUs of different products may have names of their own. Slices (MIG) and shared
GPUs are further kinds of offer and belong here as well; how a container gets one is `allocation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.naming import NamePattern, explain_change, find_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.inventory import Device, Inventory


@dataclass(frozen=True)
class Offer:
    """One line of the device list: `device_id` is unique on the node, over all resources."""

    device_id: str
    is_healthy: bool
    numa_node: int | None


@dataclass(frozen=True)
class OfferPlan:
    """Resource → what is offered under its name; resources without a device are not in it.

    `findings` are device ids that are not offered at all, and why.
    """

    resources: Mapping[str, tuple[Offer, ...]]
    findings: tuple[tuple[str, str], ...] = ()


def _offer(device: Device) -> Offer:
    return Offer(device.gpu.uuid, is_healthy=device.is_healthy, numa_node=device.numa_node)


def plan_offers(inventory: Inventory, patterns: tuple[NamePattern, ...], *, holds_back_mig: bool = False) -> OfferPlan:
    """Return what is offered: each GPU under the name of the first pattern that fits its product, or not at all.

    `holds_back_mig`: GPUs that are cut into MIG devices are not offered whole.
    """
    resources: dict[str, list[Offer]] = {}
    findings = []
    for device in inventory.devices:
        gpu, pattern = device.gpu, find_pattern(device.gpu.model, patterns)
        if gpu.mig and holds_back_mig:
            findings.append((gpu.uuid, f"{gpu.uuid} is not offered: it is cut into MIG devices, and those come later"))
        elif pattern is None:
            why = explain_change(gpu.model, patterns) or f"no pattern of resources.gpus fits {gpu.model!r}"
            findings.append((gpu.uuid, f"{gpu.uuid} is not offered: {why}"))
        else:
            resources.setdefault(pattern.resource, []).append(_offer(device))
    return OfferPlan({name: tuple(offers) for name, offers in resources.items()}, tuple(findings))
