"""Whose processes are: a question to /proc and the kubelet's folders, put outside of the event loop and bounded.

Not here: what the answer means for a page (`sharing`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from plugin.holdings.holders.cgroup import parse_cgroup
from plugin.kubelet.pod_resources.attribution import OUTSIDE
from plugin.publication.metrics.serving.scrape import DriverQuestion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.holdings.holders.cgroup import Place
    from plugin.holdings.holders.pod_names import PodNames
    from plugin.holdings.holders.processes import ProcessTable
    from plugin.kubelet.pod_resources.attribution import PodContainer

    Owners = Mapping[int, PodContainer]
    from plugin.driver.telemetry import GroupMemory
    from plugin.publication.metrics.memory import Limited
    from plugin.sharing.memory_limits.keeper import LimitedGroup

TIMEOUT_S = 1.0
_MAX_PROCESSES = 4096
_NAMESPACE = "the daemon has a process namespace of its own, and NVML tells the machine's process ids"
_HINT = "what containers use of a shared GPU is not told; run it with the host's process ids (hostPID)"


class OwnerReader:
    """Reads owners by process id from `processes` and the kubelet's names. Used in one thread at a time."""

    def __init__(self, processes: ProcessTable, names: PodNames) -> None:
        self.processes = processes
        self._names = names

    def read(self, pids: Mapping[int, float]) -> Owners:
        """Return the owner of each process that surely had its id at a time (CLOCK_BOOTTIME) and has it still.

        `OUTSIDE` owns what belongs to no pod. A process that is left out has an owner that could not be told.
        """
        places: dict[int, Place] = {}
        for pid, before_s in list(pids.items())[:_MAX_PROCESSES]:
            place = self.processes.place(pid, before_s)
            if place is not None:
                places[pid] = place
        in_pods = {place for place in places.values() if place.pod_uid or place.container_id}
        names = self._names.look_up(in_pods)
        owners: dict[int, PodContainer] = {}
        for pid, place in places.items():
            if place in names:
                owners[pid] = names[place]
            elif not place.pod_uid:
                owners[pid] = OUTSIDE
        return owners


class OwnerQuestion:
    """Asks in a thread of its own, which may hang on a broken disk, and waits no longer than `timeout_s`."""

    def __init__(self, proc: Path, log: Path, logger: Logger, *, timeout_s: float = TIMEOUT_S) -> None:
        """Look below `/proc` and `/var/log`, or other roots."""
        self._roots = proc, log
        self._log = logger
        self._pids: Mapping[int, float] = {}
        self._reader: OwnerReader | None = None
        self._question: DriverQuestion[Owners] = DriverQuestion(in_a_thread, self._read, timeout_s)

    async def __call__(self, pids: Mapping[int, float]) -> Owners:
        """Return owners as `OwnerReader.read`; none of anybody where nothing can be told."""
        self._pids = pids
        return (await self._question() or {}) if pids else {}

    def _read(self) -> Owners:
        if self._reader is None:
            # Not before metrics are read: the first list of devices does not wait for it.
            from plugin.holdings.holders.pod_names import PodNames
            from plugin.holdings.holders.processes import ProcessTable

            proc, log = self._roots
            self._reader = OwnerReader(ProcessTable(proc), PodNames(log))
        is_hidden = not self._reader.processes.has_the_machines_ids()
        self._log.standing("processes", _NAMESPACE if is_hidden else "", **({"hint": _HINT} if is_hidden else {}))
        return {} if is_hidden else self._reader.read(self._pids)


def in_a_thread(question: Callable[[], None]) -> None:
    """Have a question put in a thread of its own."""
    threading.Thread(target=question, name="owners", daemon=True).start()


# Limits in the driver, by container: the driver is asked for them, and the kubelet's folders for the names.


class LimitSource(Protocol):
    """Who knows the groups with limits."""

    async def read(self) -> tuple[tuple[LimitedGroup, Mapping[str, GroupMemory]], ...]:
        """Return what the driver says of each."""


class LimitQuestion:
    """Asks when metrics are read. Names are read in a thread, which may hang on a broken disk."""

    def __init__(self, source: LimitSource, log_root: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._source = source
        self._log_root = log_root
        self._places: frozenset[Place] = frozenset()
        self._names: PodNames | None = None
        self._ask_names: DriverQuestion[Mapping[Place, PodContainer]] = DriverQuestion(
            in_a_thread, self._look_up, timeout_s
        )

    async def __call__(self) -> Limited:
        """Return limit and use of every container with a limit, by container and GPU; without a name it is left out."""
        groups = [(parse_cgroup(f"0::{group.path}"), memory) for group, memory in await self._source.read()]
        if not groups:
            return {}
        self._places = frozenset(place for place, _ in groups)
        names = await self._ask_names() or {}
        return {
            (names[place], uuid): of_gpu
            for place, memory in groups
            for uuid, of_gpu in memory.items()
            if place in names
        }

    def _look_up(self) -> Mapping[Place, PodContainer]:
        if self._names is None:
            from plugin.holdings.holders.pod_names import PodNames

            self._names = PodNames(self._log_root)
        return self._names.look_up(self._places)
