"""Sends several requests at a time, as many as an API server takes from one client without queueing them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from provision.rollout.errors import ClusterError, ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORKERS: Final = 16

T = TypeVar("T")
R = TypeVar("R")


def each(function: Callable[[T], R], items: Sequence[T]) -> list[R | ClusterError]:
    """Call the function with each of the items; return what it returns, or the ClusterError that it raises.

    A conflict is about one of them; after any other error those that have not begun are given up with the same one.
    """
    general: list[ClusterError] = []

    def attempt(item: T) -> R | ClusterError:
        if general:
            return general[0]
        try:
            return function(item)
        except ConflictError as error:
            return error
        except ClusterError as error:
            general.append(error)
            return error

    if len(items) <= 1:
        return [attempt(item) for item in items]
    with ThreadPoolExecutor(min(WORKERS, len(items)), thread_name_prefix="request") as pool:
        return list(pool.map(attempt, items))
