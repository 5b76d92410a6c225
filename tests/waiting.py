"""Waits for what a test has brought about, instead of for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP_S, _LONGEST_STEP_S = 0.01, 0.1  # who waits for long looks seldom: a look may be a process on a node


def wait_until(
    holds: Callable[[], bool], explain: Callable[[], str] = lambda: "it did not happen", timeout_s: float = 60.0
) -> None:
    """Wait for something to become true; says what was found when it does not."""
    deadline = time.monotonic() + timeout_s
    step_s = _STEP_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(explain())
        time.sleep(step_s)
        step_s = min(step_s * 1.2, _LONGEST_STEP_S)
