"""Calls made in another thread, waited for in the event loop, and no longer than they may take."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from plugin.base.errors import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


def called_in(
    hand_over: Callable[[Callable[[], None]], None], function: Callable[[], _Result]
) -> asyncio.Future[_Result]:
    """Return what a function returns in the thread that `hand_over` has it called in, or raises; nobody has to wait."""
    answer: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
    hand_over(lambda: _make(function, answer))
    return answer


def called_in_own(name: str, function: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Return the same of a thread of its own, which keeps the process from nothing."""
    return called_in(lambda make: threading.Thread(target=make, name=name, daemon=True).start(), function)


class ThreadCalls:
    """Used in the event loop. `hand_over` has one function called in the thread, whenever that gets to it.

    However many calls wait, one function at most is handed over. A call that nothing waits for any more is not made.
    """

    def __init__(self, hand_over: Callable[[Callable[[], None]], None]) -> None:
        self._hand_over = hand_over
        self._waiting: deque[tuple[Callable[[], object], asyncio.Future[Any]]] = deque()  # its methods are atomic
        self._is_handed_over = False

    async def call(self, function: Callable[[], _Result], timeout_s: float, what: str) -> _Result:
        """Return what a function returns in the thread, or raise what it raises; NoAnswer where that takes too long."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((function, answer))  # before the look at the switch, which the thread turns off first
        if not self._is_handed_over:
            self._is_handed_over = True
            self._hand_over(self._make_calls)
        try:
            return cast("_Result", await asyncio.wait_for(answer, timeout_s))
        except asyncio.TimeoutError as error:
            raise NoAnswer(f"{what} does not answer within {timeout_s:g} s", "see `dmesg | grep -i nvrm`") from error

    def _make_calls(self) -> None:
        """In the thread."""
        self._is_handed_over = False
        while self._waiting:
            function, answer = self._waiting.popleft()
            if not answer.cancelled():
                _make(function, answer)


def _make(function: Callable[[], object], answer: asyncio.Future[Any]) -> None:
    result: object = None
    failed: Exception | None = None
    try:
        result = function()
    except Exception as error:  # noqa: BLE001 - handed on to who waits
        failed = error
    with suppress(RuntimeError):  # the loop has ended: nothing waits for it any more
        answer.get_loop().call_soon_threadsafe(_settle, answer, result, failed)


def _settle(answer: asyncio.Future[Any], result: object, failed: Exception | None) -> None:
    if answer.done():
        return  # it came too late
    if failed is None:
        answer.set_result(result)
    else:
        answer.set_exception(failed)
        answer.exception()  # nothing may wait for it any more
