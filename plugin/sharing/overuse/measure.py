"""What containers use of the GPUs whose memory they have units of, and when that is told and acted on. Pure.

What is not certain counts against no pod: a process whose container is not known, or whose memory the driver does not
tell, is left out, so that a use is never more than there is. Two pods of one name at a time (one of them is ending) are
left out, too: the kubelet tells what was given by names, without uids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from plugin.driver.telemetry import GpuProcess, GpuTelemetry
    from plugin.holdings.holders.cgroup import Place
    from plugin.holdings.holders.pod_names import PodNames
    from plugin.holdings.holders.processes import ProcessTable
    from plugin.kubelet.pod_resources.attribution import PodContainer

    Key = tuple[str, str, str]  # uid of the pod, id of the container, UUID of the device
    Allowed = Mapping[tuple[PodContainer, str], int]  # bytes by container and device


class Owner(NamedTuple):
    """Whose a process is, by its control group and by the kubelet's names for that."""

    name: PodContainer
    pod_uid: str
    container_id: str


class Use(NamedTuple):
    """What one container uses of one GPU or MIG device, in bytes, and what its units are."""

    owner: Owner
    uuid: str
    used_bytes: int
    allowed_bytes: int

    @property
    def is_over(self) -> bool:
        """Whether it is more than was given."""
        return self.used_bytes > self.allowed_bytes


def pids_of(telemetry: Iterable[GpuTelemetry]) -> dict[int, float]:
    """Return every process with the time (CLOCK_BOOTTIME) before the first list that names it."""
    found: dict[int, float] = {}
    for gpu in telemetry:
        for _, processes in _devices(gpu):
            for process in processes:
                found[process.pid] = min(gpu.asked_at_s, found.get(process.pid, gpu.asked_at_s))
    return found


def measure(
    allowed: Allowed, telemetry: Iterable[GpuTelemetry], owners: Mapping[int, Owner], limited: Collection[str]
) -> tuple[Use, ...]:
    """Return the use of every container that has units and a process, but for those whose ids are `limited`.

    The driver keeps those to their limits itself.
    """
    twice = _names_of_several(owners.values())
    used: dict[tuple[Owner, str], int] = {}
    for gpu in telemetry:
        for uuid, processes in _devices(gpu):
            for process in processes:
                owner = owners.get(process.pid)
                if owner is None or process.memory_used_bytes is None or owner.container_id in limited:
                    continue
                if (owner.name, uuid) in allowed and _pod(owner) not in twice:
                    used[owner, uuid] = used.get((owner, uuid), 0) + process.memory_used_bytes
    return tuple(Use(owner, uuid, size, allowed[owner.name, uuid]) for (owner, uuid), size in used.items())


def _devices(gpu: GpuTelemetry) -> Iterator[tuple[str, tuple[GpuProcess, ...]]]:
    """Yield what has memory of its own: the GPU, or a GPU instance that is one MIG device."""
    if gpu.processes is not None:
        yield gpu.uuid, gpu.processes
    for instance in gpu.instances:
        if len(instance.device_uuids) == 1 and instance.measured.processes is not None:
            yield instance.device_uuids[0], instance.measured.processes


def _pod(owner: Owner) -> tuple[str, str]:
    return owner.name.namespace, owner.name.pod


def _names_of_several(owners: Iterable[Owner]) -> set[tuple[str, str]]:
    uids: dict[tuple[str, str], set[str]] = {}
    for owner in owners:
        uids.setdefault(_pod(owner), set()).add(owner.pod_uid)
    return {name for name, found in uids.items() if len(found) > 1}


@dataclass(frozen=True)
class Verdict:
    """What a measurement leads to. `due`: those that were over for all of the grace, with each measurement again."""

    began: tuple[Use, ...] = ()
    ended: tuple[Use, ...] = ()
    due: tuple[Use, ...] = ()


class Judge:
    """Hears of every measurement, at monotonic seconds. `pace_s` is the time from one to the next.

    Over-use is told from the second measurement in a row on: a program may free what it allocates.
    """

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._since: dict[Key, float] = {}
        self._told: dict[Key, Use] = {}
        self._measured_s = float("-inf")

    def measured(self, uses: Iterable[Use], now_s: float, grace_s: float) -> Verdict:
        """Take a measurement."""
        if now_s - self._measured_s > 2 * self._pace_s:
            self._since.clear()
        self._measured_s = now_s
        over = {_key(use): use for use in uses if use.is_over}
        self._since = {key: self._since.get(key, now_s) for key in over}
        began = {key: use for key, use in over.items() if key not in self._told and self._since[key] < now_s}
        ended = {key: use for key, use in self._told.items() if key not in over}
        self._told = {key: use for key, use in (self._told | began).items() if key in over}
        due = tuple(use for key, use in over.items() if now_s - self._since[key] >= grace_s)
        return Verdict(tuple(began.values()), tuple(ended.values()), due)

    def missed(self) -> None:
        """Take note that a measurement failed."""
        self._since.clear()


def _key(use: Use) -> Key:
    return use.owner.pod_uid, use.owner.container_id, use.uuid


# Whose the processes on GPUs are, with the uids that the control groups name: /proc and the kubelet's folders.

_MAX_PROCESSES = 4096


class OwnerReader:
    """Used in one thread at a time; may hang on a broken disk."""

    def __init__(self, processes: ProcessTable, names: PodNames) -> None:
        self._processes = processes
        self._names = names

    def read(self, pids: Mapping[int, float]) -> dict[int, Owner] | None:
        """Return owners by process, of those that had their ids at a time (CLOCK_BOOTTIME) and have them still.

        None where process ids are not the machine's own, so that none of them means anything.
        """
        if not self._processes.has_the_machines_ids():
            return None
        places: dict[int, Place] = {}
        for pid, before_s in list(pids.items())[:_MAX_PROCESSES]:
            place = self._processes.place(pid, before_s)
            if place is not None and place.pod_uid and place.container_id:
                places[pid] = place
        names = self._names.look_up(places.values())
        return {
            pid: Owner(names[place], place.pod_uid or "", place.container_id or "")
            for pid, place in places.items()
            if place in names and names[place].container
        }
