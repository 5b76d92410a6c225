from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import MpsError
from plugin.sharing.mps.compute_mode import DriverModes

if TYPE_CHECKING:
    from collections.abc import Callable


class Driver:
    """A thread for each question; while it is held, nobody is answered."""

    def __init__(self) -> None:
        self.modes = {"GPU-a": 0}
        self.asked = 0
        self.goes_on = threading.Event()
        self.goes_on.set()

    def hand_over(self, question: Callable[[], None]) -> None:
        self.asked += 1

        def answer() -> None:
            self.goes_on.wait(60)
            question()

        threading.Thread(target=answer, daemon=True).start()

    def read(self, uuid: str) -> int:
        try:
            return self.modes[uuid]
        except KeyError as error:
            raise MpsError("not found") from error

    def write(self, uuid: str, mode: int) -> None:
        self.modes[uuid] = mode

    def modes_within(self, timeout_s: float) -> DriverModes:
        return DriverModes(self.hand_over, timeout_s, (self.read, self.write))


def test_answers_and_errors_come_back() -> None:
    async def run() -> None:
        modes = driver.modes_within(60)
        await modes.write("GPU-a", 3)
        assert await modes.read("GPU-a") == 3
        with pytest.raises(MpsError, match="not found"):
            await modes.read("GPU-b")

    driver = Driver()
    asyncio.run(run())


def test_a_driver_that_hangs_is_asked_no_second_question_until_it_answers() -> None:
    async def run() -> None:
        modes = driver.modes_within(0.05)
        driver.goes_on.clear()
        for _ in range(3):
            with pytest.raises(MpsError, match=r"has not told its compute mode within 0.05 s"):
                await modes.read("GPU-a")
        assert driver.asked == 1
        driver.goes_on.set()
        patient = driver.modes_within(60)
        patient._pending = modes._pending
        assert patient._pending is not None
        await asyncio.wait({patient._pending})
        assert await patient.read("GPU-a") == 0

    driver = Driver()
    asyncio.run(run())
