"""Sends requests to an API server: with retries, page by page, and with errors that help.

Every request is safe to be sent twice: it only reads, has a precondition, or says what is to be.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from provision.base.decoding import decoder_of, readable
from provision.cluster.errors import ForbiddenError, KubeconfigError, RefusedError
from provision.cluster.kubernetes.api.exchange import ApiResponse, Request, StatusError
from provision.cluster.kubernetes.objects.core import Metadata, Page, Status, WatchEvent
from provision.cluster.kubernetes.permissions import grant_of, missing_permission
from provision.rollout.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from provision.cluster.kubernetes.api.exchange import Stream

PATIENCE_S: Final = 30.0  # an API server that restarts is back by then
PAGE: Final = 200  # objects; a Node is up to 20 kB, and a page is held in memory twice
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
EXPIRED: Final = 410
THROTTLED: Final = 429
PASSING: Final = frozenset({THROTTLED, 500, 502, 503, 504})
_PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0)  # the last one repeats
_MAX_PAUSE_S: Final = 5.0  # however long the server asks to wait
LISTS: Final = 3
_NOBODY: Final = 'User "system:anonymous"'  # what a server calls whom it does not know
# What users write goes through an API server as they wrote it: of any depth, or with half a character.
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


class _Versioned(msgspec.Struct, frozen=True):
    metadata: Metadata


class Sender(Protocol):
    """What sends a request: ``provision.cluster.kubernetes.api.transport``."""

    @property
    def name(self) -> str:
        """What messages call the cluster."""

    def send(self, request: Request) -> ApiResponse:
        """Return the answer, success or not; raises UnreachableError when there is none."""

    def stream(self, request: Request) -> Stream:
        """Return an answer to be read as it comes; raises the same."""


class Api:
    """An API server; safe to be used by several threads."""

    def __init__(
        self,
        sender: Sender,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = sender.name
        self._guard: Callable[[], None] = lambda: None
        self._sender = sender
        self._sleep = sleep
        self._clock = clock
        self._date = (datetime.now(UTC), clock())

    def call(
        self,
        request: Request,
        type_: type[T],
        *,
        expected: Collection[int] = (),
        passing: Collection[int] = PASSING,
        patience_s: float = PATIENCE_S,
    ) -> T:
        """Return the object of the answer.

        No answer, and the codes in ``passing``, are tried again for ``patience_s``. A refusal with a code in
        ``expected`` is raised as StatusError, any other as the ClusterError that tells it.
        """
        answer = self._answer(request, expected=expected, passing=passing, patience_s=patience_s)
        return self._decode(answer.body, type_)

    def _answer(
        self,
        request: Request,
        *,
        expected: Collection[int] = (),
        passing: Collection[int] = PASSING,
        patience_s: float = PATIENCE_S,
    ) -> ApiResponse:
        deadline = self._clock() + patience_s
        pauses = itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1]))
        while True:
            try:
                answer = self._send(request)
                if answer.is_success:
                    return answer
                status, pause_s = _status(answer), max(next(pauses), _asked_pause_s(answer))
                if answer.code not in passing or self._clock() + pause_s > deadline:
                    raise self._refusal(answer.code, status, expected)
            except UnreachableError:
                pause_s = next(pauses)
                if self._clock() + pause_s > deadline:
                    raise
            self._sleep(pause_s)

    def guarded(self, guard: Callable[[], None]) -> Api:
        """Return one that calls ``guard`` before every request, those that are tried again included; it may raise."""
        twin = Api(self._sender, sleep=self._sleep, clock=self._clock)
        twin._guard = guard
        return twin

    def greet(self) -> None:
        """Make sure, without patience, that the server answers and accepts the credentials."""
        self.call(Request(method="GET", path="/api"), msgspec.Raw, patience_s=0)

    def list_all(self, path: str, item: type[T], *, selector: str = "", labels: str = "") -> list[T]:
        """Return every object below ``path``, page by page, as all of them were at one moment within this call.

        ``selector`` is a field selector, ``labels`` a label selector. The read is consistent: nothing that was true
        before the call is missed.
        """
        return self.list_moment(path, item, selector=selector, labels=labels)[0]

    def list_moment(self, path: str, item: type[T], *, selector: str = "", labels: str = "") -> tuple[list[T], str]:
        """Return the same, and the version of that moment, from which `changes` goes on."""
        for attempt in range(1, LISTS + 1):
            found: list[T] = []
            version = ""
            with contextlib.suppress(StatusError):  # the moment of the first page is forgotten: the whole list again
                expected = (EXPIRED,) if attempt < LISTS else ()
                for page in self.pages(path, item, selector=selector, labels=labels, expected=expected):
                    found.extend(page.items)
                    version = page.metadata.resource_version
                break
        return found, version

    def changes(self, path: str, item: type[T], version: str, seconds: int) -> tuple[list[tuple[str, T]], str] | None:
        """Return what changes below ``path`` in the next ``seconds``, in order, and the version after it.

        A change is its type and the object as it is then. None: that version is forgotten, the list is needed again.
        """
        query: dict[str, str | int] = {"watch": "true", "resourceVersion": version, "timeoutSeconds": seconds}
        request = Request(method="GET", path=path, query=query | {"allowWatchBookmarks": "true"})
        try:
            body = self._answer(request, expected=(EXPIRED,)).body
            found: list[tuple[str, T]] = []
            for line in body.splitlines():
                event = self._decode(line, WatchEvent)
                if event.type == "ERROR":
                    return None
                version = self._decode(bytes(event.object), _Versioned).metadata.resource_version
                if event.type != "BOOKMARK":
                    found.append((event.type, self._decode(bytes(event.object), item)))
        except StatusError:
            return None
        return found, version

    def pages(
        self,
        path: str,
        item: type[T],
        *,
        selector: str = "",
        labels: str = "",
        patience_s: float = PATIENCE_S,
        expected: Collection[int] = (EXPIRED,),
    ) -> Iterator[Page[T]]:
        """Yield what `list_all` returns page by page; each has the version of the moment.

        Raises StatusError when that moment is forgotten meanwhile: what was yielded is worth nothing then.
        """
        query: dict[str, str | int] = {"limit": PAGE} | ({"fieldSelector": selector} if selector else {})
        query |= {"labelSelector": labels} if labels else {}
        while True:
            request = Request(method="GET", path=path, query=query)
            page: Page[T] = self.call(request, Page[item], expected=expected, patience_s=patience_s)  # type: ignore[valid-type] # a type at run time
            yield page
            if not page.metadata.continue_:
                return
            query = {**query, "continue": page.metadata.continue_}

    def watch(self, path: str, version: str, *, selector: str = "", silence_s: float, seconds: int) -> Stream:
        """Return what changes below ``path`` after ``version``, as it comes, for as long as ``seconds``; tried once.

        `events` reads it. Raises StatusError when that version is forgotten.
        """
        query: dict[str, str | int] = {"watch": "true", "resourceVersion": version, "timeoutSeconds": seconds}
        query |= {"allowWatchBookmarks": "true"} | ({"fieldSelector": selector} if selector else {})
        return self.stream(Request(method="GET", path=path, query=query, timeout_s=silence_s), expected=(EXPIRED,))

    def stream(self, request: Request, *, expected: Collection[int] = ()) -> Stream:
        """Return an answer that goes on, to be read as it comes; tried once. Refusals are raised as by `call`."""
        self._guard()
        stream = self._sender.stream(request)
        if stream.is_success:
            return stream
        with contextlib.ExitStack() as stack:
            stack.callback(stream.release)
            status = _status(ApiResponse(code=stream.code, body=b"\n".join(stream.lines), headers=stream.headers))
        if stream.code in PASSING:
            raise UnreachableError(f"{self.name} answers {stream.code}: {status.message or 'no reason given'}")
        raise self._refusal(stream.code, status, expected)

    def events(self, stream: Stream, item: type[T]) -> Iterator[tuple[str, T | None, str]]:
        """Yield each change of a watch: its type, the object as it is then (None for a bookmark), and its version.

        Raises StatusError where the server ends it with one, such as for a version that is forgotten.
        """
        for line in stream.lines:
            event = self._decode(line, WatchEvent)
            if event.type == "ERROR":
                status = self._decode(bytes(event.object), Status)
                raise StatusError(status.code, status)
            version = self._decode(bytes(event.object), _Versioned).metadata.resource_version
            yield event.type, None if event.type == "BOOKMARK" else self._decode(bytes(event.object), item), version

    @property
    def clock(self) -> Callable[[], float]:
        """What its waits are measured by."""
        return self._clock

    def now(self) -> datetime:
        """Return the API server's time, from its last answer, to the second."""
        date, moment = self._date
        return date + timedelta(seconds=self._clock() - moment)

    def _send(self, request: Request) -> ApiResponse:
        self._guard()
        answer = self._sender.send(request)
        if date := answer.headers.get("Date"):
            self._date = (parsedate_to_datetime(date), self._clock())
        return answer

    def _decode(self, body: bytes, type_: type[T]) -> T:
        decoder = decoder_of(type_)
        try:
            with contextlib.suppress(*_UNREADABLE):
                return decoder.decode(body)
            return decoder.decode(readable(body))
        except _UNREADABLE as error:
            raise RefusedError(
                f"{self.name} does not answer as a Kubernetes API server does",
                hint="check whether a proxy answers in its place (HTTPS_PROXY, proxy-url)",
            ) from error

    def _refusal(self, code: int, status: Status, expected: Collection[int]) -> StatusError | ClusterError:
        if code == UNAUTHORIZED or (code == FORBIDDEN and _NOBODY in status.message):
            return KubeconfigError(
                f"{self.name} does not accept the credentials",
                hint="log in as for kubectl, and try `kubectl get nodes`",
            )
        if code == FORBIDDEN and (missing := missing_permission(status.message)) is not None:
            user, permission = missing
            return ForbiddenError(
                f"{user} may not {permission} on {self.name}",
                hint=f"{grant_of(permission)} grants it; the rule: {permission.rule}",
            )
        if code in expected:
            return StatusError(code, status)
        return RefusedError(f"{self.name} answers {code}: {status.message or status.reason or 'no reason given'}")


def _status(answer: ApiResponse) -> Status:
    """Return the answer's Status; an empty one where something else answered, such as a proxy."""
    try:
        return decoder_of(Status).decode(answer.body)
    except _UNREADABLE:
        return Status()


def _asked_pause_s(answer: ApiResponse) -> float:
    text = answer.headers.get("Retry-After") or ""
    return min(float(text), _MAX_PAUSE_S) if text.isdecimal() else 0.0
