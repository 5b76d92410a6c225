"""Work that is asked for more often than it can be done."""

from __future__ import annotations

import asyncio

from plugin.daemon.coalesced import Coalesced


def test_a_storm_is_done_one_at_a_time_and_the_last_one_who_asked_is_served() -> None:
    seen: list[int] = []
    at_once: list[int] = []
    state = {"asked": 0, "running": 0}

    async def work() -> None:
        state["running"] += 1
        at_once.append(state["running"])
        await asyncio.sleep(0.001)
        seen.append(state["asked"])
        state["running"] -= 1

    async def storm() -> None:
        tasks: list[asyncio.Future[None]] = []
        ask = Coalesced(work, lambda task: tasks.append(asyncio.ensure_future(task)))
        for number in range(1, 501):
            state["asked"] = number
            ask()
            if number % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(storm())
    assert set(at_once) == {1}
    assert seen[-1] == 500
    assert len(seen) < 50


def test_work_that_fails_is_done_again_when_it_is_asked_for() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("tried")
        if len(done) == 1:
            raise OSError("full")

    async def twice() -> None:
        tasks: list[asyncio.Future[None]] = []
        ask = Coalesced(work, lambda task: tasks.append(asyncio.ensure_future(task)))
        ask()
        await asyncio.wait(tasks)
        ask()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(twice())
    assert done == ["tried", "tried"]
