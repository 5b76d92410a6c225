"""Defines requests to an API server and their answers, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from provision.cluster.kubernetes.objects.core import Status

READ_TIMEOUT_S: Final = 30.0  # between two pieces of an answer
WHOLE_S: Final = 120.0  # of an answer, however often it is waited for
_PIECES: Final = 4  # of an answer may be as late as one may; a request that is in a hurry waits no longer for all
LONGEST_ANSWER: Final = 320 << 20  # bytes of a page of objects, all as large as etcd takes them
LONGEST_LINE: Final = 32 << 20  # bytes of an object in a watch; etcd takes one of 1.5 MiB by default
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``path`` is quoted already, ``body`` becomes JSON.

    ``longest`` limits an answer, in bytes, and ``longest_line`` the lines of one that is streamed.
    """

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"
    timeout_s: float = READ_TIMEOUT_S
    longest: int = LONGEST_ANSWER
    longest_line: int = LONGEST_LINE

    @property
    def whole_s(self) -> float:
        """For so long an answer may take as a whole, or the head of one that is streamed."""
        return min(WHOLE_S, _PIECES * self.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """What came back, success or not. ``headers`` are looked up without regard to case."""

    code: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def is_success(self) -> bool:
        """Whether the server did what was asked."""
        return HTTPStatus.OK <= self.code < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer that goes on: ``lines`` are yielded as they come, and raise UnreachableError where it breaks off.

    A line that is too long is a RefusedError.
    ``close`` ends it, from any thread, and touches nothing but the connection below TLS; whoever reads it, and nobody
    else, has to ``release`` it.
    """

    code: int
    headers: Mapping[str, str]
    lines: Iterator[bytes]
    close: Callable[[], None]
    release: Callable[[], None]

    @property
    def is_success(self) -> bool:
        """Whether the server does what was asked."""
        return HTTPStatus.OK <= self.code < HTTPStatus.MULTIPLE_CHOICES


class StatusError(Exception):
    """The API server did not do it; for those who know what its code means here."""

    def __init__(self, code: int, status: Status) -> None:
        super().__init__(f"{code} {status.message}")
        self.code = code
        self.status = status
