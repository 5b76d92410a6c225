"""Asks the API server, one call at a time, on a connection that is kept for the next call. In any thread.

Who waits for a call that gets no answer gets none either: while the server is away, all that ask wait for one of them.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClusterError
from plugin.publication.node_object.answers import UNAUTHORIZED, content_of
from plugin.publication.node_object.api.connector import Connector
from plugin.publication.node_object.api.messages import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.publication.node_object.api.connection import Connection
    from plugin.publication.node_object.api.messages import Request

_LIMITS = Limits(connect_s=3.0, read_s=5.0, call_s=8.0)  # the daemon has 10 s for an answer to the kubelet
_OF_A_WATCH = _LIMITS._replace(read_s=90.0)  # it has a line each minute


class ClusterApi:
    """`source` is a kubeconfig's path or "in-cluster"."""

    def __init__(self, source: str, environment: Mapping[str, str]) -> None:
        self._connector = Connector(source, environment)
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._failed_s, self._failure = 0.0, ClusterError("")  # when a call got no answer last, and why

    def ask(self, request: Request) -> dict[str, Any]:
        """Return the object of a success; raises ClusterError."""
        asked_s = time.monotonic()
        with self._lock:
            if asked_s < self._failed_s:
                raise ClusterError(self._failure.message, self._failure.hint)
            try:
                return self._ask_again(request)
            except ClusterError as error:
                if not error.status:
                    self._failed_s, self._failure = time.monotonic(), error
                raise
            finally:
                if self._is_closed:
                    self._hang_up()

    def follow(self, request: Request, hear: Callable[[bytes], None]) -> None:
        """Have each line of a watch heard until the server ends it; raises ClusterError."""
        answer = self._connector.connect(_OF_A_WATCH).follow(request, hear)
        self._connector.hear(answer.status)
        content_of(request, answer._replace(body=answer.body or b"{}"))

    def close(self) -> None:
        """Hang up for good, at once or after the call that is under way: an event loop waits for no call."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._hang_up()
            finally:
                self._lock.release()

    def _ask_again(self, request: Request) -> dict[str, Any]:
        is_kept = self._connection is not None
        try:
            return self._ask(request)
        except ClusterError as error:
            # A connection that was idle may have been closed meanwhile, or its token may have run out, and the file has
            # another one: nothing was done then. Our writes can be made twice: they name a version, or an object that
            # is there already.
            if error.status not in (0, UNAUTHORIZED) or not is_kept:
                raise
            return self._ask(request)

    def _ask(self, request: Request) -> dict[str, Any]:
        if self._is_closed:
            raise ClusterError("nobody asks any more")
        try:
            if self._connection is None:
                self._connection = self._connector.connect(_LIMITS)
            return content_of(request, self._connection.call(request))
        except ClusterError as error:
            if not error.status or error.status == UNAUTHORIZED:
                self._hang_up()
            self._connector.hear(error.status)
            raise

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
