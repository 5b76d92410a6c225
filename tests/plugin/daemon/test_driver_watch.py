"""One observer at a time, and only the current one is heard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.base.log import Logger
from plugin.daemon.dependencies import Dependencies
from plugin.daemon.driver_watch import DriverWatch
from plugin.driver.snapshot import Snapshot
from plugin.kubelet.registration.link import Timing
from plugin.settings.node_config import NodeConfig
from tests.plugin.fakes import VERSION, FileSource, gpus, make_dev, write_driver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from plugin.devices.observer import Observation

_PATIENCE_S = 20


class Node:
    """A driver in a file, and what was heard of it."""

    def __init__(self, folder: Path) -> None:
        self.driver = folder / "driver.json"
        self.config = NodeConfig(dev_root=folder / "dev", state_folder=folder / "state", refresh_s=0.01, retry_s=0.01)
        self.sources: list[FileSource] = []
        self.heard: list[Observation] = []
        make_dev(folder / "dev", 2)
        write_driver(self.driver, Snapshot(VERSION, gpus(2)))

    def open_source(self) -> FileSource:
        self.sources.append(FileSource(self.driver))
        return self.sources[-1]

    def run(self, work: Callable[[DriverWatch], Awaitable[None]], stall_s: float = 60) -> None:
        async def observe() -> None:
            dependencies = Dependencies(
                self.open_source, lambda: self.config, Logger(), lambda _: None, Timing(), lambda: None, stall_s=stall_s
            )
            self.news, self.crash = asyncio.Event(), asyncio.get_running_loop().create_future()
            watch = DriverWatch(dependencies, self.hear_of, self.crash.set_result)
            watch.observe(self.config)
            watch.start()
            try:
                await work(watch)
            finally:
                await watch.stop()

        asyncio.run(observe())

    def hear_of(self, observation: Observation) -> None:
        self.heard.append(observation)
        self.news.set()

    async def hear(self, wanted: Callable[[Observation], bool]) -> None:
        while not (self.heard and wanted(self.heard[-1])):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), _PATIENCE_S)


def test_an_observation_comes_again_and_again_until_the_end(tmp_path: Path) -> None:
    node = Node(tmp_path)

    async def see_a_gpu_go(_: DriverWatch) -> None:
        await node.hear(lambda seen: len(seen.inventory.devices) == 2)
        write_driver(node.driver, Snapshot(VERSION, gpus(1)))
        await node.hear(lambda seen: [device.is_healthy for device in seen.inventory.devices] == [True, False])

    node.run(see_a_gpu_go)
    assert [source.is_open for source in node.sources] == [False]


def test_a_closed_session_is_told_and_nothing_is_heard_after_it(tmp_path: Path) -> None:
    node = Node(tmp_path)

    async def close(watch: DriverWatch) -> None:
        await node.hear(lambda seen: bool(seen.inventory.devices))
        watch.close_session()
        heard = len(node.heard)
        await asyncio.wait_for(watch.closed.wait(), _PATIENCE_S)
        assert not node.sources[0].is_open
        await asyncio.sleep(0.05)
        assert len(node.heard) == heard

    node.run(close)


def test_known_devices_that_are_missing_in_a_new_session_are_unhealthy(tmp_path: Path) -> None:
    node = Node(tmp_path)

    async def resume(watch: DriverWatch) -> None:
        await node.hear(lambda seen: len(seen.inventory.devices) == 2)
        known = node.heard[-1].inventory
        watch.close_session()
        await asyncio.wait_for(watch.closed.wait(), _PATIENCE_S)
        write_driver(node.driver, Snapshot(VERSION, gpus(1)))
        watch.observe(node.config, known)
        assert not watch.observed.is_set()
        await node.hear(lambda seen: [device.is_healthy for device in seen.inventory.devices] == [True, False])

    node.run(resume)
    assert len(node.sources) == 2


def test_a_driver_that_says_nothing_in_time_is_told_with_what_was_known(tmp_path: Path) -> None:
    node = Node(tmp_path)

    async def hang(watch: DriverWatch) -> None:
        await node.hear(lambda seen: len(seen.inventory.devices) == 2)
        answered = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hang_until_told() -> None:
            asyncio.run_coroutine_threadsafe(answered.wait(), loop).result(_PATIENCE_S)

        watch.ask(hang_until_told)
        await node.hear(lambda seen: "has not answered" in seen.waiting_for)
        assert [device.is_healthy for device in node.heard[-1].inventory.devices] == [False, False]
        answered.set()
        await node.hear(lambda seen: not seen.waiting_for)

    node.run(hang, stall_s=0.05)


def test_a_bug_in_the_thread_is_a_crash_of_the_daemon(tmp_path: Path) -> None:
    node = Node(tmp_path)

    def broken() -> None:
        raise ZeroDivisionError

    async def break_it(watch: DriverWatch) -> None:
        await node.hear(lambda _: True)
        watch.ask(broken)
        assert isinstance(await asyncio.wait_for(node.crash, _PATIENCE_S), ZeroDivisionError)

    node.run(break_it)
