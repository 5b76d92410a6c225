"""What is measured as one: a GPU, or a part of one that is cut by MIG. Pure.

Decides which values of it are shown for whom; families are made of that in `devices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.driver.telemetry import GpuTelemetry
from plugin.kubelet.pod_resources.attribution import name_of
from plugin.publication.metrics.sharing import Share, shares, usages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from plugin.kubelet.pod_resources.attribution import PodContainer
    from plugin.publication.metrics.exposition import Labels
    from plugin.publication.metrics.sharing import OwnerUsage


@dataclass(frozen=True)
class Unit:
    """A GPU or a GPU instance: its own labels, its measurements, who was given it, and who is found on it."""

    labels: Labels
    accelerator_id: str  # empty where no single device has this memory
    measured: GpuTelemetry
    holders: tuple[PodContainer, ...]
    shares: tuple[Share, ...]
    usages: tuple[OwnerUsage, ...]

    @property
    def is_shared(self) -> bool:
        """Whether a value of the whole unit says nothing of a single container."""
        pods = {(holder.namespace, holder.pod) for holder in self.holders}
        users = {share.holder for share in self.shares if share.holder.container or _pod(share.holder) not in pods}
        return len(users | set(self.holders)) > len(self.holders) or len(self.holders) > 1

    def measurements(self) -> Iterator[tuple[GpuTelemetry, PodContainer | None]]:
        """Yield what is shown, and of whom: None for nobody in particular.

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
    yield Unit(labels, measured.uuid, measured, of_gpu, shares(measured, of_gpu, owners), usages(measured, owners))
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
        )
