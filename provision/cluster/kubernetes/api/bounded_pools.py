"""Has the connections of urllib3 be ended by the deadline of the request that they are used for.

Its timeouts are of each wait: whoever sends a byte now and then, in an answer, in TLS or as a proxy, resets them.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import pool_classes_by_scheme

from provision.base.asking import Deadline

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

    from urllib3 import PoolManager

ALONE: Mapping[str, str] = MappingProxyType({"Connection": "close"})  # no request after this one on its connection
_OF_THREAD = threading.local()  # the deadline of the request that a thread is at


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Have the request that this thread makes meanwhile, and its answer, end in time. Raises TimeoutError."""
    with Deadline(seconds) as deadline:
        _OF_THREAD.deadline = deadline
        try:
            yield
        finally:
            _OF_THREAD.deadline = None


def bind(manager: PoolManager) -> None:
    """Have a manager make such connections. One of SOCKS has its own."""
    if manager.pool_classes_by_scheme is pool_classes_by_scheme:
        manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}


def _take(sock: socket.socket) -> None:
    deadline: Deadline | None = getattr(_OF_THREAD, "deadline", None)
    if deadline is not None:
        deadline.take(sock)


class _LastAnswer(http.client.HTTPResponse):
    """Ends its connection, whether the server has said that it will or not (RFC 9112, 9.6)."""

    def begin(self) -> None:
        super().begin()
        self.will_close = True


class _Http(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        _take(sock)  # before TLS, and before a proxy has answered
        return sock

    def request(self, *asked: Any, **more: Any) -> None:
        if self.sock is not None:  # it is kept from a request before
            _take(self.sock)
        is_last = ALONE.items() <= (more.get("headers") or {}).items()
        self.response_class = _LastAnswer if is_last else http.client.HTTPResponse
        super().request(*asked, **more)


class _Https(_Http, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https
