"""The one way in which these tests wait: bounded, and with the reason when it was in vain."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

POLL_S = 0.2
# Two cores with a load of 38 take most of a minute for a dozen pods: a wait that ends here has another reason.
TIMEOUT_S = 120.0

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def wait_for(
    description: str,
    condition: Callable[[], _Value | None],
    *,
    timeout_s: float = TIMEOUT_S,
    evidence: Callable[[], str] = str,
) -> _Value:
    """Return the first value of ``condition`` that is true; fail with ``evidence`` after ``timeout_s``.

    A condition that can never come true any more raises: there is no use in waiting on.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {description} (last seen: {value!r})\n{evidence()}")
        time.sleep(POLL_S)


def holds(condition: Callable[[], bool], duration_s: float) -> bool:
    """Tell whether a condition is true for a while: for what must not happen."""
    deadline = time.monotonic() + duration_s
    while condition():
        if time.monotonic() > deadline:
            return True
        time.sleep(POLL_S)
    return False


def for_each(keys: Iterable[_Key], do: Callable[[_Key], _Value]) -> dict[_Key, _Value]:
    """Do the same for every key at once; the first exception is raised when all have ended."""
    known = list(keys)
    with ThreadPoolExecutor(max_workers=max(1, len(known))) as pool:
        return dict(zip(known, pool.map(do, known), strict=True))
