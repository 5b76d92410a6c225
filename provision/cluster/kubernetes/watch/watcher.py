"""Keeps a copy of a collection of objects up to date: one list, then what the API server says has changed.

A watch that ends is gone on with from the last version; a version that is forgotten costs one more list. Where the
server does not answer, attempts become rarer, and `Watcher.check` says so once the copy is too old to be believed.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from provision.cluster.kubernetes.api.client import EXPIRED as GONE
from provision.cluster.kubernetes.api.client import LISTS, PATIENCE_S
from provision.cluster.kubernetes.api.exchange import StatusError
from provision.rollout.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.api.exchange import Stream

WATCH_S: Final = 300  # after this long the server ends a watch; it is gone on with
SILENCE_S: Final = 90.0  # the server sends a bookmark every minute: a connection that is silent for longer is dead
STALE_S: Final = 10.0  # for so long the server may be out of reach before a copy is too old to decide from
SETTLED_S: Final = 1.0  # a watch that has not been refused for so long is one
CLOSE_S: Final = 5.0  # for a thread to end
_PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0, 5.0)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Copy(Protocol[T_contra]):
    """What is kept of a collection. Called by the watcher's thread, and once by the one that starts it.

    Versions are those of the API server.
    """

    def begin(self) -> None:
        """All objects follow, as they were at one moment."""

    def add(self, thing: T_contra) -> None:
        """Take one of them."""

    def settle(self, version: str) -> None:
        """Those were all: whatever else is here had gone at ``version``."""

    def change(self, kind: str, thing: T_contra) -> None:
        """Take one that was ADDED, MODIFIED or DELETED."""

    def reach(self, version: str) -> None:
        """Know that nothing else has changed up to ``version``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[T]):
    """A collection of the API; ``selector`` is a field selector."""

    path: str
    item: type[T]
    selector: str = ""


class Watcher(Generic[T]):
    """Follows one collection on a thread of its own, from `start` to `stop`. ``clock`` counts seconds."""

    def __init__(
        self,
        api: Api,
        source: Source[T],
        copy: Copy[T],
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._api, self._source, self._copy = api, source, copy
        self._clock, self._pause = clock, pause
        self._thread = threading.Thread(target=self._run, name=f"watch {source.path}", daemon=True)
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._mutex = threading.Lock()  # around the three below, and the stream
        self._failed_since: float | None = None
        self._opened_at: float | None = None
        self._error: ClusterError | None = None
        self._version = ""
        self._patience_s = PATIENCE_S
        self._has_heard = False

    def list(self) -> None:
        """Take all objects as they are now. Raises ClusterError."""
        for attempt in range(1, LISTS + 1):
            with contextlib.suppress(StatusError):  # the moment of the first page is forgotten
                self._list((GONE,) if attempt < LISTS else ())
                return

    def start(self) -> None:
        """List, and follow from there."""
        self.list()
        self._patience_s = STALE_S
        self._thread.start()

    def check(self) -> None:
        """Raise what keeps the copy from being up to date, if it has for too long, or cannot pass."""
        with self._mutex:
            error, since, opened = self._error, self._failed_since, self._opened_at
        if error is None or since is None:
            return
        now = self._clock()
        if opened is not None and now - opened >= SETTLED_S:
            return
        if not isinstance(error, UnreachableError) or now - since >= STALE_S:
            raise error

    def stop(self) -> None:
        """Begin to end; `join` waits for it."""
        self._stopped.set()
        with self._mutex:
            stream = self._stream
        if stream is not None:
            stream.close()

    def join(self) -> None:
        """Return when the thread has ended; one that waits for a connection ends with it, or with the process."""
        if self._thread.ident is not None:  # it was started
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            began, self._has_heard = self._clock(), False
            try:
                if not self._version:
                    self._list()
                self._follow()
            except StatusError as error:
                if error.code == GONE:
                    self._version = ""
                else:
                    self._fail(UnreachableError(f"{self._api.name} ends a watch: {error}"))
            except ClusterError as error:
                self._fail(error)
            except Exception as error:
                self._fail(ClusterError(f"watching {self._source.path} of {self._api.name} failed: {error!r}"))
                raise
            # Only one that brought something, or lasted, is gone on with at once: a server in trouble is spared.
            failures = 0 if self._has_heard or self._clock() - began >= _PAUSES_S[-1] else failures + 1
            if failures and not self._stopped.is_set():
                longest = _PAUSES_S[min(failures, len(_PAUSES_S)) - 1]
                self._pause(self._stopped, longest * random.uniform(0.5, 1.0))

    def _list(self, expected: Collection[int] = (GONE,)) -> None:
        version = ""
        self._copy.begin()
        pages = self._api.pages(
            self._source.path,
            self._source.item,
            selector=self._source.selector,
            patience_s=self._patience_s,
            expected=expected,
        )
        for page in pages:
            for thing in page.items:
                self._copy.add(thing)
            version = page.metadata.resource_version
        self._copy.settle(version)
        self._version = version

    def _follow(self) -> None:
        seconds = WATCH_S + random.randrange(60)
        stream = self._api.watch(
            self._source.path, self._version, selector=self._source.selector, silence_s=SILENCE_S, seconds=seconds
        )
        self._open(stream)
        try:
            for kind, thing, version in self._api.events(stream, self._source.item):
                self._recover()
                self._has_heard = True
                if thing is not None:
                    self._copy.change(kind, thing)
                self._copy.reach(version)
                self._version = version
        except UnreachableError:
            if not self._stopped.is_set():
                raise
        finally:
            self._open(None)
            stream.release()

    def _open(self, stream: Stream | None) -> None:
        with self._mutex:
            now = self._clock()
            if self._opened_at is not None and now - self._opened_at >= SETTLED_S:
                self._error = self._failed_since = None
            self._stream = stream
            self._opened_at = None if stream is None else now
        if stream is not None and self._stopped.is_set():  # `stop` came while it was opened
            stream.close()

    def _fail(self, error: ClusterError) -> None:
        with self._mutex:
            self._error = error
            if self._failed_since is None:
                self._failed_since = self._clock()

    def _recover(self) -> None:
        with self._mutex:
            self._error = self._failed_since = None
