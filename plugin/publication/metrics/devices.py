"""Families of a node's devices: what the driver measures of GPUs, by its names in Prometheus; other ones. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.driver.telemetry import GpuTelemetry
from plugin.kubelet.pod_resources.attribution import name_of
from plugin.publication.metrics.catalogue import (
    ACCELERATOR_METRICS,
    DEVICE_HEALTHY,
    GPU_METRICS,
    INSTANCE_LABELS,
    OTHER_UNITS,
    PROCESS_MEMORY,
    PROCESSES,
    UNGIVEN_PROCESSES,
)
from plugin.publication.metrics.exposition import CLAIM_LABELS, Sample
from plugin.publication.metrics.sharing import Share, shares, usages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from plugin.devices.inventory import Device, Inventory
    from plugin.devices.other.offered import OtherResource
    from plugin.kubelet.pod_resources.attribution import PodContainer
    from plugin.publication.metrics.catalogue import Reading
    from plugin.publication.metrics.exposition import Family, Labels
    from plugin.publication.metrics.sharing import OwnerUsage

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
    """Return no labels where no container has it; an unknown container is no label."""
    if holder is None:
        return ()
    container = (("container", holder.container),) if holder.container else ()
    return (*container, ("namespace", holder.namespace), ("pod", holder.pod))


def _claim_labels(holder: PodContainer | None, claim: str) -> Labels:
    """Return DCGM-exporter's labels of the claim that brought a device."""
    return tuple(zip(CLAIM_LABELS, (claim, holder.namespace), strict=True)) if holder and claim else ()


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

    `holders` are those of this node's resources, `given` those of any; None while the kubelet does not say. `claims`
    are the names of the claims by which containers have devices.
    """

    holders: Mapping[str, tuple[PodContainer, ...]]
    given: Mapping[str, tuple[PodContainer, ...]] | None
    owners: Mapping[int, PodContainer]
    claims: Mapping[tuple[PodContainer, str], str] = field(default_factory=dict)


def gpu_families(
    inventory: Inventory, telemetry: Iterable[GpuTelemetry], attribution: Attribution, hostname: str
) -> tuple[Family, ...]:
    """Return DCGM-exporter's families, the AcceleratorStats and who is on the GPUs, in the order of the inventory.

    A GPU that no pod has is one sample without a pod. A GPU that is not in the inventory is left out.
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
                claim = unit.claim(holder, attribution.claims)
                whole.append((values, (*unit.labels, *_pod_labels(holder), *_claim_labels(holder, claim))))
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


def other_family(resources: Mapping[str, OtherResource]) -> Family:
    """Return how many units of each resource are healthy, and how many are not."""
    return OTHER_UNITS.family(_samples(resources))


def _samples(resources: Mapping[str, OtherResource]) -> Iterator[Sample]:
    for name, resource in resources.items():
        healthy = sum(offer.is_healthy for offer in resource.offers)
        for state, count in (("healthy", healthy), ("unhealthy", len(resource.offers) - healthy)):
            yield Sample(count, (("resource", name), ("class", resource.class_name), ("state", state)))


# What is measured as one: a GPU, or a part of one that is cut by MIG, and which values of it are shown for whom.


@dataclass(frozen=True)
class Unit:
    """A GPU or a GPU instance: its own labels, its measurements, who was given it, and who is found on it."""

    labels: Labels
    accelerator_id: str  # empty where no single device has this memory
    measured: GpuTelemetry
    holders: tuple[PodContainer, ...]
    shares: tuple[Share, ...]
    usages: tuple[OwnerUsage, ...]
    uuids: tuple[str, ...]  # under which it is given

    def claim(self, holder: PodContainer | None, claims: Mapping[tuple[PodContainer, str], str]) -> str:
        """Return the claim by which a container has it, "" for none."""
        found = () if holder is None else (claims.get((holder, uuid), "") for uuid in self.uuids)
        return next(filter(None, found), "")

    @property
    def is_shared(self) -> bool:
        """Whether a value of the whole unit says nothing of a single container."""
        pods = {(holder.namespace, holder.pod) for holder in self.holders}
        users = {share.holder for share in self.shares if share.holder.container or _pod(share.holder) not in pods}
        return len(users | set(self.holders)) > len(self.holders) or len(self.holders) > 1

    def measurements(self) -> Iterator[tuple[GpuTelemetry, PodContainer | None]]:
        """Yield what is shown, and of whom: None for no pod in particular.

        As DCGM-exporter does it for virtual GPUs: memory and utilisation of a shared GPU are told for the whole of it,
        and for each container its own; everything else for each container that has it, with the whole one's value.
        """
        if not self.is_shared:
            for holder in self.holders or (None,):
                yield self.measured, holder
            return
        rest = self.measured._replace(gpu_utilization_percent=None, memory_used_bytes=None)
        for holder in self.holders or (None,):
            yield rest, holder
        yield self._only(self.measured.gpu_utilization_percent, self.measured.memory_used_bytes), None
        for share in self.shares:
            yield self._only(share.gpu_utilization_percent, share.memory_used_bytes), share.holder

    def _only(self, busy: int | None, memory: int | None) -> GpuTelemetry:
        return GpuTelemetry(self.measured.uuid, gpu_utilization_percent=busy, memory_used_bytes=memory)

    def ungiven(self, given: Iterable[PodContainer]) -> tuple[Share, ...]:
        """Return what pods use that were given the unit in none of their containers.

        By pod, as the kubelet does not list containers that ran before the others and had the same GPU.
        """
        pods = {_pod(holder) for holder in given}
        return tuple(share for share in self.shares if share.processes and _pod(share.holder) not in pods)


def _pod(holder: PodContainer) -> tuple[str, str]:
    return holder.namespace, holder.pod


def units_of(
    measured: GpuTelemetry,
    labels: Labels,
    holders: Mapping[str, tuple[PodContainer, ...]],
    owners: Mapping[int, PodContainer],
) -> Iterator[Unit]:
    """Yield the GPU, and each instance that it is cut into. Who was given the GPU was given every one of them."""
    of_gpu = holders.get(measured.uuid, ())
    yield Unit(
        labels,
        measured.uuid,
        measured,
        of_gpu,
        shares(measured, of_gpu, owners),
        usages(measured, owners),
        (measured.uuid,),
    )
    for instance in measured.instances:
        given = {holder for uuid in instance.device_uuids for holder in holders.get(uuid, ())}
        of_instance = tuple(sorted({*of_gpu, *given}, key=name_of))
        profile = (("GPU_I_PROFILE", instance.profile),) if instance.profile else ()
        yield Unit(
            (*labels, *profile, ("GPU_I_ID", str(instance.number))),
            instance.device_uuids[0] if len(instance.device_uuids) == 1 else "",
            instance.measured,
            of_instance,
            shares(instance.measured, of_instance, owners),
            usages(instance.measured, owners),
            (*instance.device_uuids, measured.uuid),
        )
