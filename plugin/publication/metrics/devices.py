"""Families of a node's GPUs: what the driver measures, by its names in Prometheus. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.publication.metrics.catalogue import (
    ACCELERATOR_METRICS,
    DEVICE_HEALTHY,
    GPU_METRICS,
    INSTANCE_LABELS,
    PROCESS_MEMORY,
    PROCESSES,
    UNGIVEN_PROCESSES,
)
from plugin.publication.metrics.exposition import Sample
from plugin.publication.metrics.units import units_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from plugin.devices.inventory import Device, Inventory
    from plugin.driver.telemetry import GpuTelemetry
    from plugin.kubelet.pod_resources.attribution import PodContainer
    from plugin.publication.metrics.catalogue import Reading
    from plugin.publication.metrics.exposition import Family, Labels
    from plugin.publication.metrics.units import Unit

_MAKE = "nvidia"


def nvml_address(pci_address: str) -> str:
    """Return a PCI address as NVML and DCGM write it: eight digits of domain, capitals."""
    domain, _, rest = pci_address.partition(":")
    return f"{int(domain, 16):08X}:{rest.upper()}"


def _gpu_labels(device: Device, hostname: str, driver_version: str) -> Labels:
    gpu = device.gpu
    return (
        ("gpu", str(gpu.index)),
        ("UUID", gpu.uuid),
        ("pci_bus_id", nvml_address(gpu.pci_address)),
        ("device", f"nvidia{gpu.minor}"),
        ("modelName", gpu.model),
        ("Hostname", hostname),
        ("DCGM_FI_DRIVER_VERSION", driver_version),
    )


def _pod_labels(holder: PodContainer | None) -> Labels:
    """Return no labels for nobody; an unknown container is no label."""
    if holder is None:
        return ()
    container = (("container", holder.container),) if holder.container else ()
    return (*container, ("namespace", holder.namespace), ("pod", holder.pod))


def _accelerator_labels(device: Device, unit: Unit) -> Labels:
    return (("acc_id", unit.accelerator_id), ("make", _MAKE), ("model", device.gpu.model))


def _process_labels(device: Device, unit: Unit, hostname: str) -> Labels:
    of_instance = tuple(label for label in unit.labels if label[0] in INSTANCE_LABELS)
    return (("gpu", str(device.gpu.index)), ("UUID", device.gpu.uuid), *of_instance, ("Hostname", hostname))


def _value(row: Reading, telemetry: GpuTelemetry) -> float | None:
    measured: float | None = getattr(telemetry, row.field)
    return None if measured is None else row.conversion.apply(measured)


def _families(rows: Iterable[Reading], measured: Sequence[tuple[GpuTelemetry, Labels]]) -> Iterator[Family]:
    """Return a family a row. What a GPU does not measure has no sample: a 0 would be a lie."""
    for row in rows:
        yield row.metric.family(
            Sample(value, labels) for telemetry, labels in measured if (value := _value(row, telemetry)) is not None
        )


@dataclass(frozen=True)
class Attribution:
    """Who has which device and whose each process is.

    `holders` are those of this node's resources, `given` those of any; None while the kubelet does not say.
    """

    holders: Mapping[str, tuple[PodContainer, ...]]
    given: Mapping[str, tuple[PodContainer, ...]] | None
    owners: Mapping[int, PodContainer]


def gpu_families(
    inventory: Inventory, telemetry: Iterable[GpuTelemetry], attribution: Attribution, hostname: str
) -> tuple[Family, ...]:
    """Return DCGM-exporter's families, the AcceleratorStats and who is on the GPUs, in the order of the inventory.

    A GPU that nobody has is one sample without a pod. A GPU that is not in the inventory is left out.
    """
    by_uuid = {each.uuid: each for each in telemetry}
    whole, of_containers, units = [], [], []
    for device in inventory.devices:
        measured = by_uuid.get(device.gpu.uuid)
        if measured is None:
            continue
        own = _gpu_labels(device, hostname, inventory.driver_version)
        for unit in units_of(measured, own, attribution.holders, attribution.owners):
            units.append((device, unit))
            for values, holder in unit.measurements():
                whole.append((values, (*unit.labels, *_pod_labels(holder))))
                if holder is not None and unit.accelerator_id:
                    of_containers.append((values, (*_accelerator_labels(device, unit), *_pod_labels(holder))))
    return (
        *_families(GPU_METRICS, whole),
        *_families(ACCELERATOR_METRICS, of_containers),
        *_process_families(units, attribution, hostname),
    )


def _process_families(
    units: Iterable[tuple[Device, Unit]], attribution: Attribution, hostname: str
) -> tuple[Family, ...]:
    processes, memory, ungiven = [], [], []
    for device, unit in units:
        labels = _process_labels(device, unit, hostname)
        for usage in unit.usages:
            processes.append(Sample(usage.processes, (*labels, ("owner", usage.owner))))
            if usage.memory_used_bytes is not None:
                memory.append(Sample(usage.memory_used_bytes, (*labels, ("owner", usage.owner))))
        if attribution.given is not None:
            # The kubelet knows MIG devices and GPUs by their own ids; who has the GPU has what it is cut into.
            given = {*unit.holders, *attribution.given.get(device.gpu.uuid, ())}
            ungiven += [Sample(share.processes, (*labels, *_pod_labels(share.holder))) for share in unit.ungiven(given)]
    return PROCESSES.family(processes), PROCESS_MEMORY.family(memory), UNGIVEN_PROCESSES.family(ungiven)


def health_family(inventory: Inventory, hostname: str) -> Family:
    """Return 1 or 0 for each GPU that is offered, also while the driver does not answer."""
    return DEVICE_HEALTHY.family(
        Sample(
            int(device.is_healthy), (("gpu", str(device.gpu.index)), ("UUID", device.gpu.uuid), ("Hostname", hostname))
        )
        for device in inventory.devices
    )
