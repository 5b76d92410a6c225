"""Over-use of memory, wired into the daemon. Loaded where GPUs are offered in units: most nodes have none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plugin.settings.node_config import OVERUSE_EVICT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from plugin.daemon.dependencies import Dependencies
    from plugin.daemon.optional.memory_limits import MemoryLimits
    from plugin.driver.telemetry import GpuTelemetry
    from plugin.holdings.history.keeper import HistoryKeeper
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment
    from plugin.settings.node_config import NodeConfig
    from plugin.sharing.memory_limits.units import UnitBytes
    from plugin.sharing.overuse.keeper import Cluster, EvictionRule, OveruseKeeper, Pod
    from plugin.sharing.overuse.measure import Owner, OwnerReader

    Ask = Callable[[Callable[[], None]], None]
    ListAssignments = Callable[[float], Awaitable[tuple[DeviceAssignment, ...]]]

_KUBELET_S = 2.0
_DRIVER_S = 3.0
_FILES_S = 2.0


class Overuse:
    """Begins to measure with the first units that are offered. `config` is the one at the moment."""

    def __init__(
        self,
        *,
        ask: Ask,
        list_assignments: ListAssignments,
        limits: MemoryLimits,
        unit_bytes: UnitBytes,
        cluster: Cluster,
        history: HistoryKeeper,
        config: Callable[[], NodeConfig],
        is_in_service: Callable[[], bool],
        spawn: Callable[[Awaitable[None]], None],
        dependencies: Dependencies,
    ) -> None:
        self._ask = ask
        self._list_assignments = list_assignments
        self._limits = limits
        self._unit_bytes = unit_bytes
        self._cluster = _Teller(cluster, history)
        self._config = config
        self._is_in_service = is_in_service
        self._spawn = spawn
        self._dependencies = dependencies
        self._keeper: OveruseKeeper | None = None

    def prepare(self) -> None:
        """Begin to measure, once: call it where units are offered."""
        if self._keeper is None:
            self._keeper = self._make()
            self._spawn(self._keeper.follow())

    def _make(self) -> OveruseKeeper:
        from plugin.sharing.overuse.keeper import PACE_S, OveruseKeeper

        return OveruseKeeper(
            questions=_Questions(self._ask, self._list_assignments, self._limits, self._dependencies),
            cluster=self._cluster,
            answer=self._answer,
            unit_bytes=self._unit_bytes,
            logger=self._dependencies.logger,
            pace_s=self._dependencies.overuse_pace_s or PACE_S,
        )

    def _answer(self) -> EvictionRule | None:
        from plugin.sharing.overuse.keeper import EvictionRule

        config = self._config()
        if not self._is_in_service():
            return None
        return EvictionRule(config.memory_overuse == OVERUSE_EVICT, config.overuse_grace_s)


class _Teller:
    """Tells the cluster, and keeps what happened for `explain`."""

    def __init__(self, cluster: Cluster, history: HistoryKeeper) -> None:
        self._cluster = cluster
        self._history = history
        self.evict: Callable[[tuple[Pod, ...]], None] = cluster.evict

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        self._history.happened(subject, "over share" if is_warning else "within share", message)
        self._cluster.tell(reason, message, subject, is_warning=is_warning)


class _Questions:
    """Asks kubelet, driver and /proc, each for a limited time."""

    def __init__(
        self, ask: Ask, list_assignments: ListAssignments, limits: MemoryLimits, dependencies: Dependencies
    ) -> None:
        from plugin.system.thread_calls import ThreadCalls

        self._list_assignments = list_assignments
        self._limits = limits
        self._dependencies = dependencies
        self._driver, self._files = ThreadCalls(ask), ThreadCalls(_in_a_thread)
        self._read = dependencies.read_occupancy or _nvml()
        self._owners = self._reader()

    async def assignments(self) -> tuple[DeviceAssignment, ...]:
        return await self._list_assignments(_KUBELET_S)

    async def telemetry(self) -> tuple[GpuTelemetry, ...] | None:
        return await self._driver.call(self._read, _DRIVER_S, "the driver")

    async def owners(self, pids: Mapping[int, float]) -> Mapping[int, Owner] | None:
        return await self._files.call(lambda: self._owners.read(pids), _FILES_S, "/proc")

    def limited(self) -> Collection[str]:
        return self._limits.containers

    def _reader(self) -> OwnerReader:
        from plugin.holdings.holders.pod_names import PodNames
        from plugin.holdings.holders.processes import ProcessTable
        from plugin.sharing.overuse.measure import OwnerReader

        return OwnerReader(ProcessTable(self._dependencies.proc_folder), PodNames(self._dependencies.log_folder))


def _nvml() -> Callable[[], tuple[GpuTelemetry, ...] | None]:
    from plugin.driver.nvml.instances import read_occupancy

    return read_occupancy


def _in_a_thread(question: Callable[[], None]) -> None:
    threading.Thread(target=question, name="over-use", daemon=True).start()
