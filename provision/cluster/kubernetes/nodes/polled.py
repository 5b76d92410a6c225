"""Reads something of other tools now and then, so that a rollout never waits for it and never fails because of it.

What was read last counts until it is read again. Without the permission, or where there is no such API, it is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

INTERVAL_S: Final = 30.0
REFUSED_S: Final = 300.0  # a permission, or an API, that is not there will rarely come


class Polled(Generic[T]):
    """One kind of objects, by what they are found by."""

    def __init__(
        self, read: Callable[[], Mapping[str, T]], clock: Callable[[], float], interval_s: float = INTERVAL_S
    ) -> None:
        self._read, self._clock, self._interval_s = read, clock, interval_s
        self._found: Mapping[str, T] = {}
        self._due: float | None = None

    def found(self) -> Mapping[str, T]:
        """Return what was read last; it is read again when that is due."""
        if self._due is None or self._clock() >= self._due:
            self._renew()
        return self._found

    def forget_soon(self, after_s: float = 0.0) -> None:
        """Read again after so many seconds, unless that is due earlier."""
        due = self._clock() + after_s
        self._due = due if self._due is None else min(self._due, due)

    def _renew(self) -> None:
        self._due = self._clock() + self._interval_s
        try:
            self._found = self._read()
        except (ForbiddenError, RefusedError):
            self._found, self._due = {}, self._clock() + REFUSED_S
        except ClusterError:
            return  # it does not answer: what was known still counts, and whoever needs an answer tells
