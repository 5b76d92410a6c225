"""Asks for compute modes in the driver's own thread, where a driver that hangs holds nobody else up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import MpsError
from plugin.driver.nvml.changes.compute_mode import read_compute_mode, write_compute_mode

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")
_TIMEOUT_S = 10.0


class DriverModes:
    """`ComputeModes`, one question at a time; `hand_over` has a function called in the driver's thread.

    A question that was not answered in time is put no second time: while it waits, every other one fails.
    """

    def __init__(
        self,
        hand_over: Callable[[Callable[[], None]], None],
        timeout_s: float = _TIMEOUT_S,
        calls: tuple[Callable[[str], int], Callable[[str, int], None]] = (read_compute_mode, write_compute_mode),
    ) -> None:
        self._hand_over = hand_over
        self._timeout_s = timeout_s
        self._read, self._write = calls
        self._turn = asyncio.Lock()
        self._pending: asyncio.Future[object] | None = None

    async def read(self, uuid: str) -> int:
        """Return the mode of a GPU; raises MpsError."""
        return await self._ask(lambda: self._read(uuid))

    async def write(self, uuid: str, mode: int) -> None:
        """Set the mode of a GPU; raises MpsError."""
        await self._ask(lambda: self._write(uuid, mode))

    async def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        async with self._turn:
            if self._pending is None or self._pending.done():
                self._pending = self._put(question)
                done, _ = await asyncio.wait({self._pending}, timeout=self._timeout_s)
                if done:
                    answer: _Answer = self._pending.result()  # type: ignore[assignment] # of this very question
                    return answer
            raise MpsError(
                f"the driver has not told its compute mode within {self._timeout_s:g} s", "see `dmesg | grep -i nvrm`"
            )

    def _put(self, question: Callable[[], object]) -> asyncio.Future[object]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        def settle(answer: object, error: Exception | None) -> None:
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more

        def run() -> None:
            answer, failed = None, None
            try:
                answer = question()
            except Exception as error:  # noqa: BLE001 - handed on to who asked
                failed = error
            try:
                loop.call_soon_threadsafe(settle, answer, failed)
            except RuntimeError:
                return  # the loop has ended: nobody is interested any more

        self._hand_over(run)
        return future
