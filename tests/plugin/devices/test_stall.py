"""A driver that hangs: what is shown meanwhile, and that nothing else waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from plugin.admin.client import ask
from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.observer import Observation
from plugin.devices.stall import StallWatch, stalled
from plugin.driver.snapshot import Snapshot
from tests.plugin.daemon_process import RESOURCE
from tests.plugin.fakes import VERSION, DictTree, gpus, write_driver
from tests.plugin.released_node import Node, hang_driver, kubelet
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lab.kubelet import Kubelet

__all__ = ["kubelet"]  # a fixture


def test_known_gpus_are_shown_and_none_is_given_away() -> None:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree())
    shown = stalled(Observation(inventory), 60)
    assert shown.waiting_for == "the driver has not answered for 60 s"
    assert [device.unhealthy for device in shown.inventory.devices] == [shown.waiting_for] * 2
    assert shown.has_driver


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heard_after", "told"),
    [
        pytest.param((), ["stalled"], id="silence"),
        pytest.param((0,), ["heard", "stalled"], id="silence after a word"),
    ],
)
def test_silence_is_told_once(heard_after: tuple[float, ...], told: list[str]) -> None:
    said: list[str] = []

    async def listen() -> None:
        ended = asyncio.Event()
        watch = StallWatch(0.5, lambda: (said.append("stalled"), ended.set())[0])
        watch.heard()
        for pause_s in heard_after:
            await asyncio.sleep(pause_s)
            said.append("heard")
            watch.heard()
        await asyncio.wait_for(ended.wait(), 20)
        await asyncio.sleep(0.1)

    asyncio.run(listen())
    assert said == told


def test_nobody_waits_for_a_driver_that_is_not_asked() -> None:
    said: list[str] = []

    async def listen() -> None:
        watch = StallWatch(0.01, lambda: said.append("stalled"))
        watch.heard()
        watch.end()
        await asyncio.sleep(0.05)

    asyncio.run(listen())
    assert said == []


@pytest.mark.functional
def test_a_call_that_hangs_withdraws_the_gpus_and_everybody_else_is_served(tmp_path: Path, kubelet: Kubelet) -> None:
    node = Node(tmp_path, stall_s=0.5)
    node.kubelet_root = kubelet.folder.parent
    node.configure()
    with node:
        ids = kubelet.wait_for_devices(RESOURCE, 2)
        pipe = hang_driver(node)
        kubelet.wait_for_devices(RESOURCE, 0)
        assert kubelet.capacity(RESOURCE) == 2
        status = ask(node.node / "run/node.sock", {"verb": "status"}, 5)
        assert status is not None
        assert (status["offered"], status["released"]) == (0, False)
        kubelet.restart()
        wait_until(lambda: kubelet.capacity(RESOURCE) == 2, node.log)
        write_driver(node.driver, Snapshot(VERSION, gpus(2)))
        os.write(pipe, node.driver.read_bytes())  # the call ends
        os.close(pipe)
        assert kubelet.wait_for_devices(RESOURCE, 2) == ids
        assert node.log().count('msg="the driver has not answered for 0.5 s"') == 1
        hang_driver(node)
        kubelet.wait_for_devices(RESOURCE, 0)
        node.signal(signal.SIGHUP)
        assert node.stop() == 0


@pytest.mark.functional
def test_a_driver_that_hangs_from_the_start_is_told_and_keeps_nobody_from_stopping(
    tmp_path: Path, kubelet: Kubelet
) -> None:
    node = Node(tmp_path, stall_s=0.3)
    node.kubelet_root = kubelet.folder.parent
    node.configure()
    node.start()
    with node:
        node.wait_for_log("msg=driver")
        node.kill()
    node.driver.unlink()
    os.mkfifo(node.driver)
    with node.start():
        node.wait_for_log("the driver has not answered for 0.3 s")
        assert node.stop() == 0
