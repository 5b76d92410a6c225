"""What containers with units of a GPU's memory were given, may have and use: families of them. Pure.

A limit is what the driver keeps. Where it keeps none, what a container uses is the sum of its processes, and an alert
says when that is more than was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.kubelet.pod_resources.attribution import name_of
from plugin.memory_limits.units import memory_of_units
from plugin.metrics.catalogue import CONTAINER_MEMORY_ALLOCATED, CONTAINER_MEMORY_LIMIT, CONTAINER_MEMORY_USED
from plugin.metrics.exposition import Sample
from plugin.metrics.sharing import shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.devices.inventory import Inventory
    from plugin.driver.memory_limit import GroupMemory
    from plugin.driver.telemetry import GpuTelemetry
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
    from plugin.memory_limits.units import UnitBytes
    from plugin.metrics.catalogue import Metric
    from plugin.metrics.exposition import Family, Labels

    OnGpu = tuple[PodContainer, str]  # a container on a GPU, by its UUID
    Limited = Mapping[OnGpu, GroupMemory]


@dataclass(frozen=True)
class ContainerMemory:
    """Bytes of each container on each GPU: given, allowed by the driver, and used. What is not known is left out."""

    allocated: Mapping[OnGpu, int]
    limits: Mapping[OnGpu, int]
    used: Mapping[OnGpu, int]


def allocated_memory(assignments: Iterable[DeviceAssignment], unit_bytes: UnitBytes) -> Mapping[OnGpu, int]:
    """Return what units of memory the kubelet gave, in bytes."""
    found: dict[OnGpu, int] = {}
    for each in assignments:
        for uuid, size in memory_of_units(each.device_ids, unit_bytes).items():
            found[each.holder, uuid] = found.get((each.holder, uuid), 0) + size
    return found


def measure_containers(
    allocated: Mapping[OnGpu, int],
    limited: Limited,
    telemetry: Iterable[GpuTelemetry],
    owners: Mapping[int, PodContainer],
) -> ContainerMemory:
    """Return what is known of every container that was given units, or that the driver limits.

    What the driver counts for a limit is all that a container has; the sum of its processes can be less.
    """
    used = {on_gpu: memory.used_bytes for on_gpu, memory in limited.items()}
    for measured in telemetry:
        holders = [holder for holder, uuid in allocated if uuid == measured.uuid]
        for share in shares(measured, holders, owners) if holders else ():
            on_gpu = (share.holder, measured.uuid)
            if on_gpu in allocated and share.memory_used_bytes is not None:
                used.setdefault(on_gpu, share.memory_used_bytes)
    limits = {on_gpu: memory.limit_bytes for on_gpu, memory in limited.items() if memory.limit_bytes is not None}
    return ContainerMemory(allocated, limits, used)


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
    )


def _labels(holder: PodContainer, index: str, uuid: str, hostname: str) -> Labels:
    container = (("container", holder.container),) if holder.container else ()
    own = (("gpu", index), ("UUID", uuid), ("Hostname", hostname))
    return (*own, *container, ("namespace", holder.namespace), ("pod", holder.pod))
