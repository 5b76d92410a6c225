from __future__ import annotations

import asyncio

import pytest

from plugin.daemon.state import State
from plugin.daemon.tasks import Tasks
from plugin.settings.node_config import DEVICE_PLUGIN, DRA

MISSING, DONE = "kubelet.sock does not exist", ""


@pytest.mark.parametrize(
    ("interfaces", "waits", "told", "is_registered"),
    [
        ((DEVICE_PLUGIN,), {}, "registering with the kubelet", False),
        ((DEVICE_PLUGIN,), {DEVICE_PLUGIN: MISSING}, MISSING, False),
        ((DEVICE_PLUGIN,), {DEVICE_PLUGIN: DONE, DRA: MISSING}, "registered with the kubelet", True),
        ((DRA,), {DEVICE_PLUGIN: DONE}, "registering with the kubelet", False),
        ((DRA,), {DEVICE_PLUGIN: DONE, DRA: MISSING}, MISSING, False),
        ((DEVICE_PLUGIN, DRA), {DEVICE_PLUGIN: DONE, DRA: MISSING}, MISSING, False),
        ((DEVICE_PLUGIN, DRA), {DEVICE_PLUGIN: DONE, DRA: DONE}, "registered with the kubelet", True),
    ],
)
def test_it_is_registered_when_nothing_is_waited_for_by_which_gpus_are_given(
    interfaces: tuple[str, ...], waits: dict[str, str], told: str, *, is_registered: bool
) -> None:
    state = State(interfaces=interfaces, waits=waits)
    assert (state.registration, state.is_registered) == (told, is_registered)


def test_tasks_end_with_the_daemon() -> None:
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def begin_and_end() -> None:
        tasks = Tasks()
        tasks.spawn(work())
        await asyncio.sleep(0)
        tasks.cancel()
        await asyncio.sleep(0)

    asyncio.run(begin_and_end())
    assert ends == ["cancelled"]
