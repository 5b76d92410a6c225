from __future__ import annotations

import asyncio

from plugin.daemon.state import State
from plugin.daemon.tasks import Tasks


def test_it_is_registered_when_nothing_is_waited_for() -> None:
    state = State()
    assert (state.registration, state.is_registered) == ("registering with the kubelet", False)
    state.set_registration("kubelet.sock does not exist")
    assert (state.registration, state.is_registered) == ("kubelet.sock does not exist", False)
    state.set_registration("")
    assert (state.registration, state.is_registered) == ("registered with the kubelet", True)


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
