"""Calls in a thread of somebody else's."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import LimitError, NoAnswer
from plugin.system.thread_calls import ThreadCalls

if TYPE_CHECKING:
    from collections.abc import Callable


class Thread:
    """Does what it is given when it is let."""

    def __init__(self) -> None:
        self.handed: list[Callable[[], None]] = []

    def hand_over(self, function: Callable[[], None]) -> None:
        self.handed.append(function)

    def work(self) -> None:
        """Do what was handed over, in a real thread."""
        handed, self.handed = self.handed, []
        for function in handed:
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()


def test_calls_are_made_in_the_thread_and_answered() -> None:
    async def scenario() -> None:
        thread = Thread()
        calls = ThreadCalls(thread.hand_over)
        waiting = [asyncio.ensure_future(calls.call(lambda number=number: number, 5, "it")) for number in range(9)]  # type: ignore[misc] # bound at once
        await asyncio.sleep(0)
        assert len(thread.handed) == 1, "one function for all of them"
        thread.work()
        assert await asyncio.gather(*waiting) == list(range(9))

    asyncio.run(scenario())


def test_what_a_call_raises_is_raised_and_harms_no_other() -> None:
    def fail() -> None:
        raise LimitError("no")

    async def scenario() -> None:
        thread = Thread()
        calls = ThreadCalls(thread.hand_over)
        bad, good = asyncio.ensure_future(calls.call(fail, 5, "it")), asyncio.ensure_future(calls.call(int, 5, "it"))
        await asyncio.sleep(0)
        thread.work()
        with pytest.raises(LimitError, match="no"):
            await bad
        assert await good == 0

    asyncio.run(scenario())


def test_a_thread_that_hangs_is_not_waited_for_and_makes_no_late_call() -> None:
    async def scenario() -> None:
        thread, made = Thread(), []
        calls = ThreadCalls(thread.hand_over)
        with pytest.raises(NoAnswer, match=r"the driver does not answer within 0\.01 s"):
            await calls.call(lambda: made.append(1), 0.01, "the driver")
        again = asyncio.ensure_future(calls.call(lambda: "back", 5, "the driver"))
        await asyncio.sleep(0)
        thread.work()
        assert await again == "back"
        assert made == []

    asyncio.run(scenario())


@pytest.mark.slow
def test_no_call_is_lost_however_threads_run() -> None:
    async def scenario() -> None:
        wake, handed, end = threading.Event(), [], threading.Event()

        def run() -> None:
            while not end.is_set():
                wake.wait(5)
                wake.clear()
                while handed:
                    handed.pop()()

        def hand_over(function: Callable[[], None]) -> None:
            handed.append(function)
            wake.set()

        worker = threading.Thread(target=run)
        worker.start()
        calls = ThreadCalls(hand_over)

        async def caller() -> None:
            for _ in range(200):
                assert await calls.call(lambda: 7, 10, "it") == 7

        await asyncio.gather(*(caller() for _ in range(20)))
        end.set()
        wake.set()
        worker.join(10)

    asyncio.run(scenario())
