"""A keeper among kubelet, driver, /proc and cluster: what is told, who is evicted, and that doubt evicts nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import KubeletError
from plugin.sharing.overuse.keeper import EvictionRule, OveruseKeeper, Pod
from tests.plugin.node_object.written_log import WrittenLog
from tests.plugin.overuse.shares import FIRST, GIB, given, owner, uid, working

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from plugin.driver.telemetry import GpuTelemetry
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment
    from plugin.sharing.overuse.measure import Owner


class Node:
    """Containers `a` with 2 GiB and `b` with 4, whose processes are 1 and 2; `failing` does not answer."""

    def __init__(self, *, evicts: bool = True) -> None:
        self.answer: EvictionRule | None = EvictionRule(evicts, 60.0)
        self.given: tuple[DeviceAssignment, ...] = (given("a", 2), given("b", 4))
        self.memory: dict[int, int | None] = {1: GIB, 2: GIB}
        self.whose: Mapping[int, Owner] = {1: owner("a", 1), 2: owner("b", 2)}
        self.failing = ""
        self.changes = False  # whether somebody is given something during each measurement
        self.limits: set[str] = set()
        self.events: list[tuple[str, str]] = []
        self.evicted: tuple[Pod, ...] = ()
        self.logger = WrittenLog()
        self.now_s = 0.0
        self.sleeps = 0
        self.keeper = OveruseKeeper(
            questions=self,
            cluster=self,
            answer=lambda: self.answer,
            unit_bytes={FIRST: GIB}.get,
            logger=self.logger,
            clock=lambda: self.now_s,
            sleep=self.sleep,
        )

    async def sleep(self, _seconds: float) -> None:
        self.sleeps += 1
        await asyncio.sleep(0 if self.sleeps < 3 else 60)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += 10.0
            asyncio.run(self.keeper.look())

    async def assignments(self) -> tuple[DeviceAssignment, ...]:
        if self.failing == "kubelet":
            raise KubeletError("the kubelet does not answer", "wait")
        found = self.given
        if self.changes:
            self.given = (*found, given(f"new-{len(found)}", 1))
        return found

    async def telemetry(self) -> tuple[GpuTelemetry, ...] | None:
        return None if self.failing == "driver" else (working(self.memory),)

    async def owners(self, pids: Mapping[int, float]) -> Mapping[int, Owner] | None:
        return None if self.failing == "/proc" else {pid: self.whose[pid] for pid in pids}

    def limited(self) -> Collection[str]:
        return self.limits

    def tell(self, reason: str, message: str, subject: str, *, is_warning: bool) -> None:
        assert subject == FIRST
        assert is_warning is (reason == "GPUMemoryOverShare")
        self.events.append((reason, message))

    def evict(self, pods: tuple[Pod, ...]) -> None:
        self.evicted = pods


def over(node: Node) -> Node:
    node.memory = {1: 3 * GIB, 2: GIB}
    return node


def test_over_use_is_told_once_and_its_end_too() -> None:
    node = over(Node(evicts=False))
    node.look(30)
    node.memory = {1: GIB, 2: GIB}
    node.look(3)
    assert [reason for reason, _ in node.events] == ["GPUMemoryOverShare", "GPUMemoryWithinShare"]
    assert "team/a, container main, uses 3072 MiB" in node.events[0][1]
    (line,) = node.logger.lines("uses more of a GPU's memory")
    assert "pod=team/a" in line
    assert "allowed_mib=2048" in line
    assert node.evicted == ()


def test_a_pod_is_evicted_after_the_grace_and_no_other_one() -> None:
    node = over(Node())
    node.look(6)
    assert node.evicted == ()
    node.look()
    (pod,) = node.evicted
    assert (pod.namespace, pod.name, pod.uid) == ("team", "a", uid(1))


def test_a_pod_with_two_containers_over_their_shares_is_named_once() -> None:
    node = Node()
    node.memory = {1: 3 * GIB, 2: 9 * GIB}
    node.whose = {1: owner("a", 1), 2: owner("b", 2, of_pod=1)}
    node.look(8)
    assert [pod.uid for pod in node.evicted] == [uid(1)]


@pytest.mark.parametrize("failing", ["kubelet", "driver", "/proc"])
def test_a_measurement_that_fails_withdraws_the_eviction_and_begins_the_grace_again(failing: str) -> None:
    node = over(Node())
    node.look(8)
    assert node.evicted
    node.failing = failing
    node.look()
    assert node.evicted == ()
    node.failing = ""
    node.look(6)
    assert node.evicted == ()
    node.look()
    assert node.evicted


@pytest.mark.parametrize("reason", ["released", "limited in the driver", "allocations while it is measured", "report"])
def test_what_is_not_certain_or_not_wanted_evicts_nobody(reason: str) -> None:
    node = over(Node())
    if reason == "released":
        node.answer = None
    elif reason == "limited in the driver":
        node.limits = {owner("a", 1).container_id}
    elif reason == "report":
        node.answer = EvictionRule(evicts=False, grace_s=60.0)
    else:
        node.changes = True
    node.look(30)
    assert node.evicted == ()


def test_a_program_that_frees_its_memory_in_time_stays() -> None:
    node = over(Node())
    node.look(6)
    node.memory = {1: 2 * GIB, 2: GIB}
    node.look()
    over(node).look(6)
    assert node.evicted == ()


def test_a_silent_kubelet_is_told_once() -> None:
    node = over(Node())
    node.failing = "kubelet"
    node.look(5)
    assert len(node.logger.lines("nobody knows who is over its share")) == 1


def test_a_bug_ends_nothing() -> None:
    node = over(Node())
    node.whose = {}  # a process that the reader should have known

    async def script() -> None:
        following = asyncio.ensure_future(node.keeper.follow())
        while node.sleeps < 3:  # noqa: ASYNC110 - there is nothing else to wait for
            await asyncio.sleep(0.001)
        following.cancel()

    asyncio.run(script())
    assert len(node.logger.lines("over-use of memory: bug")) == 2
