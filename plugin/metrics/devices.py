"""Families of a node's GPUs: what the driver measures, by its names in Prometheus. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.metrics.catalogue import ACCELERATOR_METRICS, DEVICE_HEALTHY, GPU_METRICS
from plugin.metrics.exposition import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from plugin.inventory import Device, Inventory
    from plugin.metrics.attribution import PodContainer
    from plugin.metrics.catalogue import Reading
    from plugin.metrics.exposition import Family, Labels
    from plugin.telemetry import GpuTelemetry

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


def _pod_labels(holder: PodContainer) -> Labels:
    return (("container", holder.container), ("namespace", holder.namespace), ("pod", holder.pod))


def _value(row: Reading, telemetry: GpuTelemetry) -> float | None:
    measured: int | None = getattr(telemetry, row.field)
    return None if measured is None else row.conversion.apply(measured)


def _families(rows: Iterable[Reading], measured: Iterable[tuple[GpuTelemetry, tuple[Labels, ...]]]) -> Iterator[Family]:
    """Return a family a row. What a GPU does not measure has no sample: a 0 would be a lie."""
    known = tuple(measured)
    for row in rows:
        yield row.metric.family(
            Sample(value, labels)
            for telemetry, every_labels in known
            if (value := _value(row, telemetry)) is not None
            for labels in every_labels
        )


def gpu_families(
    inventory: Inventory,
    telemetry: Iterable[GpuTelemetry],
    holders: Mapping[str, tuple[PodContainer, ...]],
    hostname: str,
) -> tuple[Family, ...]:
    """Return DCGM-exporter's families and the AcceleratorStats, in the order of the inventory.

    A GPU that nobody has is one sample without a pod; one that several containers share is a sample each with the whole
    GPU's value, as DCGM-exporter does it for virtual GPUs. A GPU that is not in the inventory is left out.
    """
    by_uuid = {each.uuid: each for each in telemetry}
    devices = [device for device in inventory.devices if device.gpu.uuid in by_uuid]
    whole, of_containers = [], []
    for device in devices:
        own = _gpu_labels(device, hostname, inventory.driver_version)
        containers = [_pod_labels(holder) for holder in holders.get(device.gpu.uuid, ())]
        measured = by_uuid[device.gpu.uuid]
        accelerator = (("acc_id", device.gpu.uuid), ("make", _MAKE), ("model", device.gpu.model))
        whole.append((measured, tuple((*own, *pod) for pod in containers) or (own,)))
        of_containers.append((measured, tuple((*accelerator, *pod) for pod in containers)))
    return (*_families(GPU_METRICS, whole), *_families(ACCELERATOR_METRICS, of_containers))


def health_family(inventory: Inventory, hostname: str) -> Family:
    """Return 1 or 0 for each GPU that is offered, also while the driver does not answer."""
    return DEVICE_HEALTHY.family(
        Sample(
            int(device.is_healthy), (("gpu", str(device.gpu.index)), ("UUID", device.gpu.uuid), ("Hostname", hostname))
        )
        for device in inventory.devices
    )
