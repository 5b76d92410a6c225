"""Calls with a time limit, for what can hang in the kernel: the driver, and other processes' files in /proc."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


def call_within(timeout_s: float, call: Callable[[], _Result], what: str) -> _Result:
    """Return the result of a call or raise what it raised; NoAnswer when it takes longer than `timeout_s`.

    The call then goes on in a thread that does not keep the process from ending.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - handed on to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    if not results:
        raise NoAnswer(
            f"{what}: no answer within {timeout_s:g} s",
            "see `dmesg | grep -i nvrm` and `ps -eo pid,stat,wchan:32,comm`",
        )
    return results[0]
