"""Connections to the API server for calls of several threads: one each, kept for the next call."""

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
    from plugin.publication.node_object.api.messages import ApiResponse, Request

_KEPT = 64
_MAX_BYTES = 64 * 1024 * 1024  # of a page of pods
_AT_ONCE_S = 1.0
_SILENCE_S = 90.0  # a watch has a line each minute


class Connections:
    """`source` is a kubeconfig's path or "in-cluster". Safe for threads."""

    def __init__(self, source: str, environment: Mapping[str, str]) -> None:
        self._connector = Connector(source, environment)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    def call(self, request: Request) -> dict[str, Any]:
        """Return the object of a success; raises ClusterError."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            asked_s = time.monotonic()
            try:
                return self._ask(connection, request)
            except ClusterError as error:
                if error.status or time.monotonic() - asked_s > _AT_ONCE_S:
                    raise
            # The API server has closed it meanwhile. Whatever is asked here may be asked twice.
        return self._ask(self._connector.connect(Limits(answer_bytes=_MAX_BYTES)), request)

    def follow(self, request: Request, hear: Callable[[bytes], None]) -> ApiResponse:
        """Have the lines of an answer without end heard; raises ClusterError where it breaks off."""
        answer = self._connector.connect(Limits(read_s=_SILENCE_S)).follow(request, hear)
        self._connector.hear(answer.status)
        return answer

    def close(self) -> None:
        """Close what is idle, and the rest once it is idle."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _ask(self, connection: Connection, request: Request) -> dict[str, Any]:
        try:
            answer = connection.call(request)
        except ClusterError:
            connection.close()
            raise
        if answer.status == UNAUTHORIZED:
            connection.close()
            self._connector.hear(answer.status)
        else:
            self._keep(connection)
        return content_of(request, answer)

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < _KEPT and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
