"""Who has which GPU: what the kubelet's pod resources interface says, turned around.

Pure. Not here: asking the kubelet (`plugin.kubelet.pod_resources.client`), and who uses a GPU (`sharing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.sharing import device_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

CLAIM = "claim "  # begins what stands for the resource of devices that a ResourceClaim brought
_MIG = "MIG-"  # begins the UUID of a MIG device, whichever resource it is offered as


@dataclass(frozen=True)
class PodContainer:
    """A container as its pod names it; `container` is empty where only the pod is known."""

    namespace: str
    pod: str
    container: str


OUTSIDE = PodContainer("", "", "")  # owns the processes that belong to no pod


@dataclass(frozen=True)
class DeviceAssignment:
    """The devices of one resource that one container has. The kubelet may tell them in several parts.

    `memory` are bytes by UUID, where a claim is of a part of a device's memory.
    """

    holder: PodContainer
    resource: str
    device_ids: tuple[str, ...]
    memory: tuple[tuple[str, int], ...] = ()


def name_of(holder: PodContainer) -> tuple[str, str, str]:
    """Return what containers are put in order by."""
    return holder.namespace, holder.pod, holder.container


def holders_by_uuid(
    assignments: Iterable[DeviceAssignment], resources: Container[str]
) -> Mapping[str, tuple[PodContainer, ...]]:
    """Return for each device of these resources the containers that have it or a share of it, each once and in order.

    MIG devices count in any resource: their UUIDs cannot be anything else.
    """
    found: dict[str, set[PodContainer]] = {}
    for each in assignments:
        for device_id in each.device_ids:
            if each.resource in resources or each.resource.startswith(CLAIM) or device_id.startswith(_MIG):
                found.setdefault(device_of(device_id), set()).add(each.holder)
    return {uuid: tuple(sorted(holders, key=name_of)) for uuid, holders in found.items()}


def claims_of(assignments: Iterable[DeviceAssignment]) -> Mapping[tuple[PodContainer, str], str]:
    """Return the name of the claim by which a container has a device, by its UUID; the last one, where it has several.

    A claim is of its pod's namespace.
    """
    return {
        (each.holder, uuid): each.resource[len(CLAIM) :]
        for each in assignments
        if each.resource.startswith(CLAIM)
        for uuid in each.device_ids
    }
