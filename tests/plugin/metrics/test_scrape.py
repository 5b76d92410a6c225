"""What is asked for a page, how often, and what is on it when somebody does not answer."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import KubeletError
from plugin.base.log import Logger
from plugin.devices.inventory import Device, Inventory
from plugin.driver.telemetry import GpuProcess
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from plugin.publication.metrics.counters import Counters
from plugin.publication.metrics.serving.scrape import DriverQuestion, NodeState, Scrape
from tests.plugin.fakes import VERSION, gpu, telemetry
from tests.plugin.metrics.reading import Page, read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.publication.metrics.serving.scrape import Telemetry

INVENTORY = Inventory(VERSION, (Device(gpu(0), "/dev/nvidia0"),))
STATE = NodeState(INVENTORY, ("nvidia.com/gpu",), is_driver_up=True, is_released=False, is_registered=True)
GIVEN = (DeviceAssignment(PodContainer("default", "train-0", "main"), "nvidia.com/gpu", (gpu(0).uuid,)),)
PACE_S = 5.0


@dataclass
class Node:
    """Answers what it is told to, and counts how often it was asked."""

    state: NodeState = STATE
    measured: Telemetry = (telemetry(0),)
    assignments: tuple[DeviceAssignment, ...] | KubeletError = GIVEN
    now: float = 100.0
    asked: list[str] = field(default_factory=list)
    owners: dict[int, PodContainer] = field(default_factory=dict)
    pids: list[dict[int, float]] = field(default_factory=list)
    may_answer: asyncio.Event | None = None
    counters: Counters = field(default_factory=Counters)

    async def measure(self) -> Telemetry:
        self.asked.append("driver")
        if self.may_answer is not None:
            await self.may_answer.wait()
        return self.measured

    async def list_assignments(self) -> tuple[DeviceAssignment, ...]:
        self.asked.append("kubelet")
        if isinstance(self.assignments, KubeletError):
            raise self.assignments
        return self.assignments

    async def tell_owners(self, pids: Mapping[int, float]) -> Mapping[int, PodContainer]:
        self.pids.append(dict(pids))
        return self.owners

    def scrape(self) -> Scrape:
        return Scrape(
            state=lambda: self.state,
            counters=self.counters,
            telemetry=self.measure,
            assignments=self.list_assignments,
            owners=self.tell_owners,
            logger=Logger(),
            hostname="node-1",
            pace_s=lambda: PACE_S,
            clock=lambda: self.now,
        )


def pod_of(page: Page) -> list[str | None]:
    return [dict(labels).get("pod") for labels in page.of("DCGM_FI_DEV_GPU_UTIL")]


async def pages(scrape: Scrape, count: int = 1) -> list[Page]:
    return [read_page(await scrape.page()) for _ in range(count)]


def test_a_page_has_everything() -> None:
    (page,) = asyncio.run(pages(Node().scrape()))
    assert pod_of(page) == ["train-0"]
    for name in ("driver_up", "kubelet_registered", "telemetry_up", "pod_resources_up"):
        assert page.value(f"grapnel_{name}") == 1
    assert page.value("grapnel_released") == 0
    assert len(page.of("grapnel_build_info")) == 1


def test_scraping_faster_asks_no_more_often() -> None:
    async def scenario() -> None:
        scrape = node.scrape()
        await pages(scrape, 3)
        assert sorted(node.asked) == ["driver", "kubelet"]
        node.now += PACE_S - 0.1
        await pages(scrape)
        assert len(node.asked) == 2
        node.now += 0.2
        await pages(scrape)
        assert len(node.asked) == 4

    node = Node()
    asyncio.run(scenario())


def test_what_the_daemon_counts_is_never_old() -> None:
    async def scenario() -> list[float]:
        node = Node()
        scrape = node.scrape()
        values = []
        for _ in range(2):
            found = read_page(await scrape.page()).of("grapnel_device_allocations_total")
            values.append(sum(found.values()))
            node.counters.allocated(["GPU-0"])
        return values

    assert asyncio.run(scenario()) == [0, 1]


def test_many_clients_at_once_are_one_question() -> None:
    async def scenario() -> tuple[list[str], int]:
        node = Node(may_answer=asyncio.Event())
        scrape = node.scrape()
        waiting = [asyncio.ensure_future(scrape.page()) for _ in range(10)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # a client that hangs up
        await asyncio.sleep(0)
        assert node.may_answer is not None
        node.may_answer.set()
        answers = await asyncio.gather(*waiting[1:])
        return sorted(node.asked), len(set(answers))

    assert asyncio.run(scenario()) == (["driver", "kubelet"], 1)


def test_a_driver_that_measures_nothing_leaves_its_rows_out() -> None:
    (page,) = asyncio.run(pages(Node(measured=None).scrape()))
    assert not [name for name, _ in page.samples if name.startswith("DCGM_")]
    assert (page.value("grapnel_telemetry_up"), page.value("grapnel_driver_up")) == (0, 1)


def test_a_driver_that_is_away_is_not_asked_and_what_it_said_is_not_repeated() -> None:
    async def scenario() -> tuple[Page, list[str]]:
        node = Node()
        scrape = node.scrape()
        await pages(scrape)
        node.state = replace(STATE, is_driver_up=False, is_released=True)
        (soon,) = await pages(scrape)
        node.now += 2 * PACE_S
        (later,) = await pages(scrape)
        assert later == soon
        return later, node.asked

    page, asked = asyncio.run(scenario())
    assert not page.of("DCGM_FI_DEV_GPU_UTIL")
    assert (page.value("grapnel_released"), page.value("grapnel_telemetry_up")) == (1, 0)
    assert sorted(asked) == ["driver", "kubelet", "kubelet"]


def test_a_kubelet_that_does_not_answer_takes_the_pods_and_nothing_else() -> None:
    (page,) = asyncio.run(pages(Node(assignments=KubeletError("no answer", "wait")).scrape()))
    assert pod_of(page) == [None]
    assert page.value("grapnel_pod_resources_up") == 0


def test_processes_are_attributed_as_often_as_they_are_measured() -> None:
    async def scenario() -> Page:
        scrape = node.scrape()
        await pages(scrape, 2)
        node.now += 2 * PACE_S
        (page,) = await pages(scrape)
        return page

    other = PodContainer("default", "train-1", "main")
    processes = (GpuProcess(7, 5 << 20, 1), GpuProcess(8, 6 << 20, 2))
    node = Node(measured=(telemetry(0)._replace(processes=processes, asked_at_s=3.5),))
    node.owners = {7: GIVEN[0].holder, 8: other}
    page = asyncio.run(scenario())
    assert node.pids == [{7: 3.5, 8: 3.5}] * 2
    assert pod_of(page) == [None, "train-0", "train-1"]
    assert list(page.of("grapnel_gpu_ungiven_processes").values()) == [1]


def test_while_the_kubelet_does_not_answer_nobody_is_on_a_gpu_unasked() -> None:
    processes = (GpuProcess(7, 5 << 20, 1),)
    node = Node(measured=(telemetry(0)._replace(processes=processes),), assignments=KubeletError("no answer", "wait"))
    node.owners = {7: GIVEN[0].holder}
    (page,) = asyncio.run(pages(node.scrape()))
    assert pod_of(page) == [None, "train-0"], "it is known by its process"
    assert not page.of("grapnel_gpu_ungiven_processes")


def test_without_measurements_nobody_asks_whose_processes_are() -> None:
    node = Node(measured=None)
    asyncio.run(pages(node.scrape()))
    assert node.pids == []


def test_the_last_error_event_of_a_gpu_is_shown() -> None:
    node = Node()
    (before,) = asyncio.run(pages(node.scrape()))
    node.counters.xid(gpu(0).uuid, 31)
    node.counters.xid(gpu(0).uuid, 79)
    (after,) = asyncio.run(pages(node.scrape()))
    assert not before.of("DCGM_FI_DEV_XID_ERRORS")
    assert list(after.of("DCGM_FI_DEV_XID_ERRORS").values()) == [79]


def in_a_thread(question: Callable[[], None]) -> None:
    threading.Thread(target=question).start()


def test_the_driver_is_asked_in_its_own_thread() -> None:
    threads: list[int] = []

    def read() -> Telemetry:
        threads.append(threading.get_ident())
        return (telemetry(0),)

    async def scenario() -> Telemetry:
        return await DriverQuestion(in_a_thread, read)()

    assert asyncio.run(scenario()) == (telemetry(0),)
    assert threads != [threading.get_ident()]


def test_a_driver_that_hangs_is_waited_for_once_and_asked_again_when_it_has_answered() -> None:
    may_answer, put = threading.Event(), []

    def read() -> Telemetry:
        put.append(None)
        assert may_answer.wait(20)
        return (telemetry(0),)

    async def scenario() -> list[Telemetry]:
        ask = DriverQuestion(in_a_thread, read, timeout_s=0.05)
        answers = [await ask() for _ in range(3)]
        assert len(put) == 1
        may_answer.set()
        while (answer := await ask()) is None:  # noqa: ASYNC110 - nobody says when a thread ends
            await asyncio.sleep(0.01)
        return [*answers, answer]

    assert asyncio.run(scenario()) == [None, None, None, (telemetry(0),)]


def test_a_fault_in_reading_reaches_who_asked() -> None:
    def read() -> Telemetry:
        raise ZeroDivisionError

    async def scenario() -> None:
        await DriverQuestion(in_a_thread, read)()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(scenario())
