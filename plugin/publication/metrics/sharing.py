"""What each container uses of a GPU that several use, and whose the processes on a GPU are. Pure.

A value is told only where it is known: a container none of whose processes were found uses 0 of a GPU only if the owner
of every process on it is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.kubelet.pod_resources.attribution import OUTSIDE, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from plugin.driver.telemetry import GpuProcess, GpuTelemetry
    from plugin.kubelet.pod_resources.attribution import PodContainer

OWNERS = ("pod", "host", "unknown")


@dataclass(frozen=True)
class Share:
    """What one container uses; None where that cannot be told."""

    holder: PodContainer
    processes: int
    memory_used_bytes: int | None
    gpu_utilization_percent: int | None


@dataclass(frozen=True)
class OwnerUsage:
    """The processes of one kind of owner (`OWNERS`) on a GPU; memory None where the driver does not say all of it."""

    owner: str
    processes: int
    memory_used_bytes: int | None


def listed_pids(telemetry: Iterable[GpuTelemetry]) -> dict[int, float]:
    """Return every process on these GPUs with the time (CLOCK_BOOTTIME) before the first list that names it."""
    found: dict[int, float] = {}
    for each in telemetry:
        for process in _every_process(each):
            found[process.pid] = min(each.asked_at_s, found.get(process.pid, each.asked_at_s))
    return found


def _every_process(measured: GpuTelemetry) -> Iterator[GpuProcess]:
    yield from measured.processes or ()
    for instance in measured.instances:
        yield from instance.measured.processes or ()


def shares(
    measured: GpuTelemetry, holders: Iterable[PodContainer], owners: Mapping[int, PodContainer]
) -> tuple[Share, ...]:
    """Return what each container uses of a GPU, in order; none where the driver does not list processes.

    Containers are those that were given the GPU (`holders`) and those that have a process on it.
    """
    if measured.processes is None:
        return ()
    of_container: dict[PodContainer, list[GpuProcess]] = {holder: [] for holder in holders}
    is_complete = True
    for process in measured.processes:
        owner = owners.get(process.pid)
        if owner is None or (owner != OUTSIDE and not owner.container):
            is_complete = False
        if owner is not None and owner != OUTSIDE:
            of_container.setdefault(owner, []).append(process)
    is_busy_known = measured.gpu_utilization_percent is not None
    return tuple(
        _share(holder, processes, is_busy_known=is_busy_known)
        if processes or is_complete
        else Share(holder, 0, None, None)
        for holder, processes in sorted(of_container.items(), key=lambda each: name_of(each[0]))
    )


def _share(holder: PodContainer, processes: list[GpuProcess], *, is_busy_known: bool) -> Share:
    memory = _total(process.memory_used_bytes for process in processes)
    busy = _total(process.gpu_utilization_percent for process in processes) if is_busy_known else None
    return Share(holder, len(processes), memory, busy)


def _total(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def usages(measured: GpuTelemetry, owners: Mapping[int, PodContainer]) -> tuple[OwnerUsage, ...]:
    """Return the processes on a GPU by kind of owner, every kind; none where the driver does not list processes."""
    if measured.processes is None:
        return ()
    by_kind: dict[str, list[GpuProcess]] = {owner: [] for owner in OWNERS}
    for process in measured.processes:
        owner = owners.get(process.pid)
        by_kind["unknown" if owner is None else "host" if owner == OUTSIDE else "pod"].append(process)
    return tuple(
        OwnerUsage(owner, len(processes), _total(process.memory_used_bytes for process in processes))
        for owner, processes in by_kind.items()
    )
