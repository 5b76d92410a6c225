"""What containers with units or shares of a GPU were given of its memory, may have and use: families of them. Pure.

A limit is what the driver keeps. Where it keeps none, what a container uses is the sum of its processes, and an alert
says when that is more than its units. A share is no promise of memory: its fair part is only for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from plugin.devices.sharing import SHARE, device_of, kind_of
from plugin.kubelet.pod_resources.attribution import name_of
from plugin.publication.metrics.container_catalogue import (
    CONTAINER_MEMORY_ALLOCATED,
    CONTAINER_MEMORY_FAIR,
    CONTAINER_MEMORY_LIMIT,
    CONTAINER_MEMORY_OVER,
    CONTAINER_MEMORY_USED,
)
from plugin.publication.metrics.exposition import Sample
from plugin.publication.metrics.sharing import shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.devices.inventory import Inventory
    from plugin.driver.telemetry import GpuTelemetry, GroupMemory
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
    from plugin.publication.metrics.exposition import Family, Labels, Metric

    OnGpu = tuple[PodContainer, str]  # a container on a GPU, by its UUID
    Limited = Mapping[OnGpu, GroupMemory]

NO_SHARES: Mapping[OnGpu, int] = MappingProxyType({})


@dataclass(frozen=True)
class ContainerMemory:
    """Bytes of each container on each GPU: given, allowed by the driver, and used. What is not known is left out.

    `fair` is for shares what `allocated` is for units.
    """

    allocated: Mapping[OnGpu, int]
    limits: Mapping[OnGpu, int]
    used: Mapping[OnGpu, int]
    fair: Mapping[OnGpu, int] = field(default_factory=dict)

    @property
    def over(self) -> Mapping[OnGpu, int]:
        """What each uses beyond that."""
        parts = {**self.fair, **self.allocated}
        return {each: max(0, size - parts[each]) for each, size in self.used.items() if each in parts}


def fair_memory(
    assignments: Iterable[DeviceAssignment], shares_of: Mapping[str, int], inventory: Inventory
) -> Mapping[OnGpu, int]:
    """Return what the shares of GPUs that the kubelet gave are of their memory; `shares_of` is how many a GPU has."""
    memory = {device.gpu.uuid: device.memory_bytes for device in inventory.devices}
    counts: dict[OnGpu, int] = {}
    for each in assignments:
        for device_id in each.device_ids:
            if kind_of(device_id) == SHARE:
                on_gpu = each.holder, device_of(device_id)
                counts[on_gpu] = counts.get(on_gpu, 0) + 1
    return {
        (holder, uuid): size * count // shares_of[uuid]
        for (holder, uuid), count in counts.items()
        if shares_of.get(uuid) and (size := memory.get(uuid)) is not None
    }


def measure_containers(
    allocated: Mapping[OnGpu, int],
    limited: Limited,
    telemetry: Iterable[GpuTelemetry],
    owners: Mapping[int, PodContainer],
    fair: Mapping[OnGpu, int] = NO_SHARES,
) -> ContainerMemory:
    """Return what is known of every container that was given units or shares, or that the driver limits.

    What the driver counts for a limit is all that a container has; the sum of its processes can be less.
    """
    used = {on_gpu: memory.used_bytes for on_gpu, memory in limited.items()}
    for measured in telemetry:
        holders = [holder for holder, uuid in (*allocated, *fair) if uuid == measured.uuid]
        for share in shares(measured, holders, owners) if holders else ():
            on_gpu = (share.holder, measured.uuid)
            if (on_gpu in allocated or on_gpu in fair) and share.memory_used_bytes is not None:
                used.setdefault(on_gpu, share.memory_used_bytes)
    limits = {on_gpu: memory.limit_bytes for on_gpu, memory in limited.items() if memory.limit_bytes is not None}
    return ContainerMemory(allocated, limits, used, fair)


def memory_families(memory: ContainerMemory, inventory: Inventory, hostname: str) -> tuple[Family, ...]:
    """Return the families of containers' memory, by container and GPU. Of GPUs that are not in the inventory: none."""
    indices = {device.gpu.uuid: str(device.gpu.index) for device in inventory.devices}

    def family(metric: Metric, values: Mapping[OnGpu, int]) -> Family:
        known = sorted(
            (on_gpu for on_gpu in values if on_gpu[1] in indices), key=lambda each: (name_of(each[0]), each[1])
        )
        return metric.family(
            Sample(values[holder, uuid], _labels(holder, indices[uuid], uuid, hostname)) for holder, uuid in known
        )

    return (
        family(CONTAINER_MEMORY_ALLOCATED, memory.allocated),
        family(CONTAINER_MEMORY_LIMIT, memory.limits),
        family(CONTAINER_MEMORY_USED, memory.used),
        family(CONTAINER_MEMORY_FAIR, memory.fair),
        family(CONTAINER_MEMORY_OVER, memory.over),
    )


def _labels(holder: PodContainer, index: str, uuid: str, hostname: str) -> Labels:
    container = (("container", holder.container),) if holder.container else ()
    own = (("gpu", index), ("UUID", uuid), ("Hostname", hostname))
    return (*own, *container, ("namespace", holder.namespace), ("pod", holder.pod))
