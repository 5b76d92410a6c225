"""Makes the page: what is known already, and what driver and kubelet are asked for it.

Driver, kubelet and /proc are asked when metrics are read, one question at a time, at most every `pace_s`:
whoever scrapes faster gets the same measurements again, so that scraping cannot load a GPU. One that does not answer in
time is left out, and the page says so. Not here: HTTP, and how an answer becomes families.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from plugin import __version__
from plugin.base.errors import NodeDaemonError
from plugin.drift.result import Verdict
from plugin.kubelet.pod_resources.attribution import claims_of, holders_by_uuid
from plugin.publication.metrics.catalogue import (
    BUILD_INFO,
    CONFIG_BY_LABEL,
    CONFIG_UP,
    DRIFT_AT,
    DRIFT_DIFFERENCES,
    DRIFT_UP,
    DRIVER_UP,
    POD_RESOURCES_UP,
    REGISTERED,
    RELEASED,
    TELEMETRY_UP,
)
from plugin.publication.metrics.devices import Attribution, gpu_families, health_family, other_family
from plugin.publication.metrics.exposition import Sample, render
from plugin.publication.metrics.memory import fair_memory, measure_containers, memory_families
from plugin.publication.metrics.sharing import listed_pids
from plugin.sharing.memory_limits.units import memory_of_containers
from plugin.system.thread_calls import called_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeAlias

    from plugin.base.log import Logger
    from plugin.devices.inventory import Inventory
    from plugin.devices.other.offered import OtherResource
    from plugin.drift.result import Result
    from plugin.driver.telemetry import GpuTelemetry
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
    from plugin.publication.metrics.counters import Counters
    from plugin.publication.metrics.exposition import Family, Metric
    from plugin.publication.metrics.memory import Limited
    from plugin.sharing.memory_limits.units import UnitBytes

    Telemetry: TypeAlias = "tuple[GpuTelemetry, ...] | None"  # None: there was no answer

_Answer = TypeVar("_Answer")
TIMEOUT_S = 2.0  # for driver and kubelet each; Prometheus waits 10 s for a page


@dataclass(frozen=True)
class NodeState:
    """What the daemon knows at the moment of a scrape."""

    inventory: Inventory
    resources: tuple[str, ...]
    is_driver_up: bool
    is_released: bool
    is_registered: bool
    others: Mapping[str, OtherResource] = field(default_factory=dict)
    shares_of: Mapping[str, int] = field(default_factory=dict)  # into how many a GPU is divided
    is_config_refused: bool = False
    config_problem: str | None = None  # None where the configuration is not by label
    drift: Result | None = None  # None where no timer has compared the node


class DriverQuestion(Generic[_Answer]):
    """Asks the driver in its own thread, and waits no longer than `timeout_s`.

    `hand_over` has a function called in that thread, where `read` may be. A question that is not answered is
    still there: until it is, no other one is put.
    """

    def __init__(
        self,
        hand_over: Callable[[Callable[[], None]], None],
        read: Callable[[], _Answer | None],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._hand_over = hand_over
        self._read = read
        self._timeout_s = timeout_s
        self._answer: asyncio.Future[_Answer | None] | None = None

    async def __call__(self) -> _Answer | None:
        """Return what was measured, None where nothing was in time; raises what `read` raised."""
        if self._answer is not None and not self._answer.done():
            return None
        answer = self._answer = called_in(self._hand_over, self._read)
        done, _ = await asyncio.wait({answer}, timeout=self._timeout_s)
        return answer.result() if done else None


@dataclass(frozen=True)
class Measured:
    """What driver and kubelet said the last time, None where one did not; and whose the processes on the GPUs are."""

    telemetry: Telemetry = None
    assignments: tuple[DeviceAssignment, ...] | None = None
    owners: Mapping[int, PodContainer] = field(default_factory=dict)
    limited: Limited = field(default_factory=dict)


async def no_limits() -> Limited:
    """Return that the driver limits no container."""
    return {}


class Scrape:
    """Makes pages. Used in the event loop's thread; `clock` is monotonic seconds."""

    def __init__(
        self,
        *,
        state: Callable[[], NodeState],
        counters: Counters,
        telemetry: Callable[[], Awaitable[Telemetry]],
        assignments: Callable[[], Awaitable[tuple[DeviceAssignment, ...]]],
        owners: Callable[[Mapping[int, float]], Awaitable[Mapping[int, PodContainer]]],
        logger: Logger,
        hostname: str,
        pace_s: Callable[[], float],
        limits: Callable[[], Awaitable[Limited]] = no_limits,
        unit_bytes: UnitBytes = lambda _uuid: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._counters = counters
        self._ask_telemetry = telemetry
        self._ask_assignments = assignments
        self._ask_owners = owners
        self._ask_limits = limits
        self._unit_bytes = unit_bytes
        self._log = logger
        self._hostname = hostname
        self._pace_s = pace_s
        self._clock = clock
        self._measured = Measured()
        self._due_at = float("-inf")
        self._asking: asyncio.Future[None] | None = None

    async def page(self) -> bytes:
        """Return the current page."""
        if self._asking is None and self._clock() >= self._due_at:
            self._asking = asyncio.ensure_future(self._ask())
        if self._asking is not None:
            await asyncio.shield(self._asking)  # a client that hangs up takes nobody's answer with it
        return render(self._families(self._state(), self._measured))

    async def _ask(self) -> None:
        try:
            telemetry, assignments = await asyncio.gather(self._measure(), self._list_assignments())
            owners = await self._ask_owners(listed_pids(telemetry)) if telemetry else {}
            limited = await self._ask_limits() if telemetry else {}
            self._measured = Measured(telemetry, assignments, owners, limited)
        finally:
            self._asking = None
            self._due_at = self._clock() + self._pace_s()

    async def _measure(self) -> Telemetry:
        return await self._ask_telemetry() if self._state().is_driver_up else None

    async def _list_assignments(self) -> tuple[DeviceAssignment, ...] | None:
        try:
            assignments = await self._ask_assignments()
        except NodeDaemonError as error:
            self._log.standing("pod resources", error.message, hint=error.hint)
            return None
        self._log.standing("pod resources")
        return assignments

    def _families(self, state: NodeState, measured: Measured) -> tuple[Family, ...]:
        # A driver that went since it was asked: what it said then is not so any more.
        telemetry = measured.telemetry if state.is_driver_up else None
        with_xid = tuple(each._replace(last_xid=self._counters.last_xid(each.uuid)) for each in telemetry or ())
        assignments = measured.assignments or ()
        attribution = Attribution(
            holders_by_uuid(assignments, state.resources),
            None
            if measured.assignments is None
            else holders_by_uuid(assignments, {each.resource for each in assignments}),
            measured.owners,
            claims_of(assignments),
        )
        allocated = memory_of_containers(assignments, self._unit_bytes)
        limited = measured.limited if state.is_driver_up else {}
        fair = fair_memory(assignments, state.shares_of, state.inventory)
        memory = measure_containers(allocated, limited, telemetry or (), measured.owners, fair)
        return (
            *gpu_families(state.inventory, with_xid, attribution, self._hostname),
            *memory_families(memory, state.inventory, self._hostname),
            health_family(state.inventory, self._hostname),
            other_family(state.others),
            *self._counters.families(),
            BUILD_INFO.family([Sample(1, (("version", __version__),))]),
            _flag(DRIVER_UP, is_so=state.is_driver_up),
            _flag(RELEASED, is_so=state.is_released),
            _flag(REGISTERED, is_so=state.is_registered),
            _flag(CONFIG_UP, is_so=not state.is_config_refused),
            *(() if state.config_problem is None else (_flag(CONFIG_BY_LABEL, is_so=not state.config_problem),)),
            *drift_families(state.drift),
            _flag(TELEMETRY_UP, is_so=telemetry is not None),
            _flag(POD_RESOURCES_UP, is_so=measured.assignments is not None),
        )


def _flag(metric: Metric, *, is_so: bool) -> Family:
    return metric.family([Sample(int(is_so))])


def drift_families(result: Result | None) -> tuple[Family, ...]:
    """Return how many differences of each kind there are, and when that was found."""
    if result is None:
        return ()
    is_compared = result.verdict is not Verdict.NOT_COMPARED
    counts = result.counts().items() if is_compared else ()
    return (
        DRIFT_DIFFERENCES.family(Sample(count, (("kind", kind.value),)) for kind, count in counts),
        DRIFT_UP.family([Sample(int(is_compared))]),
        DRIFT_AT.family([Sample(result.at)]),
    )
