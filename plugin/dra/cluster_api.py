"""Asks the API server, one call at a time, on a connection that is kept for the next call. In any thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from plugin.base.errors import ClusterError
from plugin.publication.node_object.answers import UNAUTHORIZED, content_of
from plugin.publication.node_object.api.openssl import allow_openssl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.publication.node_object.api.connection import Connection
    from plugin.publication.node_object.api.credentials import Credentials
    from plugin.publication.node_object.api.messages import Request

_CONNECT_S, _READ_S, _CALL_S = 3.0, 5.0, 8.0  # the daemon has 10 s for an answer to the kubelet
_WATCH_SILENCE_S = 90.0  # a watch has a line each minute


class ClusterApi:
    """`source` is a kubeconfig's path or "in-cluster"."""

    def __init__(self, source: str, environment: Mapping[str, str]) -> None:
        self._source = source
        self._environment = environment
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._connection: Connection | None = None
        self._is_closed = False

    def ask(self, request: Request) -> dict[str, Any]:
        """Return the object of a success; raises ClusterError."""
        with self._lock:
            is_kept = self._connection is not None
            try:
                return self._ask(request)
            except ClusterError as error:
                # A connection that was idle may have been closed meanwhile: nothing was asked then. Our writes can be
                # made twice: they name a version, or an object that is there already.
                if error.status or not is_kept:
                    raise
                return self._ask(request)
            finally:
                if self._is_closed:
                    self._hang_up()

    def follow(self, request: Request, hear: Callable[[bytes], None]) -> None:
        """Have each line of a watch heard until the server ends it; raises ClusterError."""
        with self._lock:
            connection = self._connect(_WATCH_SILENCE_S)
        answer = connection.follow(request, hear)
        if answer.status == UNAUTHORIZED:
            self._forget()
        content_of(request, answer._replace(body=answer.body or b"{}"))

    def close(self) -> None:
        """Hang up for good, at once or after the call that is under way: an event loop waits for no call."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._hang_up()
            finally:
                self._lock.release()

    def _ask(self, request: Request) -> dict[str, Any]:
        if self._is_closed:
            raise ClusterError("nobody asks any more")
        try:
            if self._connection is None:
                self._connection = self._connect(_READ_S)
            return content_of(request, self._connection.call(request))
        except ClusterError as error:
            if not error.status or error.status == UNAUTHORIZED:
                self._hang_up()
            if error.status == UNAUTHORIZED:
                self._forget()
            raise

    def _connect(self, read_s: float) -> Connection:
        allow_openssl()
        from plugin.publication.node_object.api.connection import Connection, Limits  # noqa: PLC0415 - OpenSSL: when it is needed
        from plugin.publication.node_object.api.credentials import Credentials  # noqa: PLC0415 - the same

        if self._credentials is None:
            self._credentials = Credentials(self._source, self._environment)
        limits = Limits(connect_s=_CONNECT_S, read_s=read_s, call_s=_CALL_S)
        return Connection(self._credentials.current(), self._environment, limits)

    def _forget(self) -> None:
        if self._credentials is not None:
            self._credentials.forget()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
