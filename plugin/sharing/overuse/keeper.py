"""Measures at its pace, tells who is over its share, and has their pods evicted where that was declared.

In the event loop: driver and files are read in threads, each question with a limit. A measurement that fails is no
evidence of anything. Not here: the eviction itself, which is a call of the Kubernetes API.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from plugin.base.errors import NodeDaemonError
from plugin.sharing.memory_limits.units import memory_of_containers
from plugin.sharing.overuse.measure import Judge, measure, pids_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from plugin.base.log import Logger
    from plugin.driver.telemetry import GpuTelemetry
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment
    from plugin.sharing.memory_limits.units import UnitBytes
    from plugin.sharing.overuse.measure import Owner, Use

PACE_S = 10.0
OVER, BELOW = "GPUMemoryOverShare", "GPUMemoryWithinShare"
_TOPIC = "over-use of memory"
_MIB = 2**20
_HINT = "others may run out of memory: delete the pod, or give it more units; docs/device-plugin/isolation.md"


class EvictionRule(NamedTuple):
    """What follows over-use: whether pods are evicted, and after how long."""

    evicts: bool
    grace_s: float


class Pod(NamedTuple):
    """A pod that is to go, and why."""

    namespace: str
    name: str
    uid: str
    why: str


class Cluster(Protocol):
    """Who speaks to the Kubernetes API; every call returns at once."""

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        """Make an event of the Node."""

    def evict(self, pods: tuple[Pod, ...]) -> None:
        """Evict these pods, each once, and no others any more."""


class Questions(Protocol):
    """Whom the keeper asks; each raises NodeDaemonError where there is no answer in time."""

    async def assignments(self) -> tuple[DeviceAssignment, ...]:
        """Ask the kubelet who has what."""

    async def telemetry(self) -> tuple[GpuTelemetry, ...] | None:
        """Ask the driver for processes; None where it is away."""

    async def owners(self, pids: Mapping[int, float]) -> Mapping[int, Owner] | None:
        """Ask /proc; None where ids of processes mean nothing."""

    def limited(self) -> Collection[str]:
        """Return the ids of containers that the driver limits."""


class OveruseKeeper:
    """`answer` is what follows at the moment; None while nothing is to be measured (a release, no units)."""

    def __init__(
        self,
        *,
        questions: Questions,
        cluster: Cluster,
        answer: Callable[[], EvictionRule | None],
        unit_bytes: UnitBytes,
        logger: Logger,
        pace_s: float = PACE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._questions = questions
        self._cluster = cluster
        self._answer = answer
        self._unit_bytes = unit_bytes
        self._log = logger
        self._pace_s = pace_s
        self._clock = clock
        self._sleep = sleep
        self._judge = Judge(pace_s)

    async def follow(self) -> None:
        """Measure until cancelled."""
        while True:
            await self._sleep(self._pace_s)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - a bug here must not cost GPUs
                self._missed("")
                self._log.warning("over-use of memory: bug", error=repr(error)[:256], hint="please report it")

    async def look(self) -> None:
        """Measure once."""
        answer = self._answer()
        if answer is None:
            self._missed("")
            return
        try:
            uses = await self._measure()
        except NodeDaemonError as error:
            self._missed(f"nobody knows who is over its share: {error.message}")
            return
        if uses is None:
            self._missed("")
            return
        self._log.standing(_TOPIC)
        verdict = self._judge.measured(uses, self._clock(), answer.grace_s)
        for use in verdict.began:
            self._tell(use)
        for use in verdict.ended:
            self._cluster.tell(
                BELOW, f"{_who(use)} is no longer over its share of {use.uuid}", use.uuid, is_warning=False
            )
        self._cluster.evict(_pods(verdict.due) if answer.evicts else ())

    async def _measure(self) -> tuple[Use, ...] | None:
        """Return what containers use; None where that cannot be told. The kubelet is asked first, and again at the end.

        What was given must be the same before and after: an allocation in between would be compared with a use of then.
        """
        before = await self._questions.assignments()
        allowed = memory_of_containers(before, self._unit_bytes)
        if not allowed:
            return ()
        telemetry = await self._questions.telemetry()
        owners = None if telemetry is None else await self._questions.owners(pids_of(telemetry))
        if telemetry is None or owners is None:
            return None
        if memory_of_containers(await self._questions.assignments(), self._unit_bytes) != allowed:
            return None
        return measure(allowed, telemetry, owners, self._questions.limited())

    def _missed(self, problem: str) -> None:
        """Begin every grace again, and withdraw evictions that wait for the API: their evidence is old."""
        self._judge.missed()
        self._cluster.evict(())
        if problem:
            self._log.standing(_TOPIC, problem, hint="over-use is neither told nor acted on until there is an answer")

    def _tell(self, use: Use) -> None:
        name = use.owner.name
        self._log.warning(
            "a container uses more of a GPU's memory than its units",
            pod=f"{name.namespace}/{name.pod}",
            container=name.container,
            gpu=use.uuid,
            used_mib=use.used_bytes // _MIB,
            allowed_mib=use.allowed_bytes // _MIB,
            hint=_HINT,
        )
        self._cluster.tell(OVER, f"{_who(use)} {_what(use)}", use.uuid, is_warning=True)


def _who(use: Use) -> str:
    name = use.owner.name
    return f"{name.namespace}/{name.pod}, container {name.container},"


def _what(use: Use) -> str:
    return f"uses {use.used_bytes // _MIB} MiB of {use.uuid}, and its units are {use.allowed_bytes // _MIB} MiB"


def _pods(due: tuple[Use, ...]) -> tuple[Pod, ...]:
    """Return each pod once, with the first reason."""
    found: dict[str, Pod] = {}
    for use in due:
        name = use.owner.name
        pod = Pod(name.namespace, name.pod, use.owner.pod_uid, f"container {name.container} {_what(use)}")
        found.setdefault(pod.uid, pod)
    return tuple(found.values())
