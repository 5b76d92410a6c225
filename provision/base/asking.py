"""Asks others over HTTP, with an end to it whatever they do: to the time that it takes, and to what comes.

A socket's timeout is one of each wait: whoever sends a byte now and then resets it, in an answer, in TLS, or as a proxy
on the way. So a `Deadline` ends the connection itself, wherever it is by then. Redirects are not followed, and what is
packed is not unpacked: no answer is larger than what was sent.

Not here: an API server's answers (`cluster.transport`).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import math
import os
import queue
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Protocol
    from urllib.parse import SplitResult

    class HasFileno(Protocol):
        """A socket, or what reads one."""

        def fileno(self) -> int: ...


Connection = TypeVar("Connection", bound=http.client.HTTPConnection)


class TooLongError(Exception):
    """The answer is longer than what was to be read of it."""


class Deadline:
    """Ends the connections that are made under it, while inside `with`. Then there is a TimeoutError, whatever came."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._seconds = seconds
        self._end_s = time.monotonic() + seconds
        self._left = threading.Event()
        self._mutex = threading.Lock()  # around the connections, and whether they are ended already
        self._taken: list[HangUp] = []
        self._thread = threading.Thread(target=self._watch, name="deadline", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        with self._mutex:
            taken, self._taken = self._taken, []
        for each in taken:
            each.release()
        # What had come of an answer by then passes for all of it, and what is raised then is the end that we made.
        if self.is_over and (error is None or isinstance(error, (OSError, http.client.HTTPException))):
            raise TimeoutError("no answer in time") from error

    def left_s(self) -> float:
        """Return the remaining seconds; raises TimeoutError once the deadline has passed."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer in time")
        return left_s

    def again(self) -> None:
        """Begin again to count; it may take until twice its seconds then. For something that goes on, part by part."""
        self._end_s = time.monotonic() + self._seconds

    def rest(self) -> None:
        """Count no longer, until `again`."""
        self._end_s = math.inf

    def take(self, sock: HasFileno) -> None:
        """End this connection as well."""
        hang_up = HangUp(sock.fileno())
        with self._mutex:
            self._taken.append(hang_up)
            if self.is_over:
                hang_up()

    def bind(self, connection: Connection) -> Connection:
        """Have a connection be made under this deadline; return it."""

        def connect(address: tuple[str, int], timeout_s: float, *_: object) -> socket.socket:
            return self._connect(*address, timeout_s)

        connection._create_connection = connect  # type: ignore[attr-defined] # noqa: SLF001 - http.client's own seam
        return connection

    def _connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return a connection to the first address of a host that answers; a silent one does not cost all the time."""
        failure: OSError = OSError("the name has no address")
        found = self._addresses(host, port)
        for number, (family, kind, protocol, _, address) in enumerate(found):
            sock = socket.socket(family, kind, protocol)
            try:
                self.take(sock)
                sock.settimeout(min(timeout_s, self.left_s() / (len(found) - number)))
                sock.connect(address)
                sock.settimeout(min(timeout_s, self.left_s()))
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure

    def _addresses(self, host: str, port: int) -> list[tuple[Any, ...]]:
        """Look a name up on a thread of its own: there is no other end to a resolver's patience."""
        found: queue.SimpleQueue[list[tuple[Any, ...]] | Exception] = queue.SimpleQueue()

        def look_up() -> None:
            try:
                found.put([*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)])
            except (OSError, ValueError) as error:  # a ValueError: it cannot be a name
                found.put(error)

        threading.Thread(target=look_up, name="name", daemon=True).start()
        try:
            addresses = found.get(timeout=self.left_s())
        except queue.Empty:
            raise TimeoutError("its name is not found in time") from None
        if isinstance(addresses, Exception):
            raise addresses
        return addresses

    def _watch(self) -> None:
        while (left_s := self._end_s - time.monotonic()) > 0:
            if self._left.wait(min(left_s, self._seconds)):
                return
        with self._mutex:
            self.is_over = True
            for each in self._taken:
                each()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request. ``most_bytes`` of the answer are read; of 0 nothing is, and its length does not matter.

    ``uses_proxy``: an https URL is reached through the proxy that the environment names, if there is one.
    """

    method: str
    url: str
    deadline_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    most_bytes: int = 0
    tls: ssl.SSLContext | None = None
    uses_proxy: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, whatever it is."""

    status: int
    body: bytes = b""


def ask(question: Question) -> Response:
    """Return the answer to a question, TLS verified.

    Raises TimeoutError when there is none in time, TooLongError, another OSError where the connection fails, and
    HTTPException or ValueError where an answer is not HTTP, or the request could not be.
    """
    url = urlsplit(question.url)
    target = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
    connection = _connection(question, url)
    try:
        with Deadline(question.deadline_s) as deadline:
            deadline.bind(connection).request(question.method, target, question.body, dict(question.headers))
            response = connection.getresponse()
            body = response.read(question.most_bytes + 1) if question.most_bytes else b""
    finally:
        connection.close()
    if len(body) > question.most_bytes:
        raise TooLongError
    return Response(response.status, body)


def _connection(question: Question, url: SplitResult) -> http.client.HTTPConnection:
    host, timeout_s = url.hostname or "", question.deadline_s
    if url.scheme != "https":
        return http.client.HTTPConnection(host, url.port, timeout=timeout_s)
    context = question.tls or ssl.create_default_context()
    via = https_proxy(host) if question.uses_proxy else None
    if via is None:
        return http.client.HTTPSConnection(host, url.port, timeout=timeout_s, context=context)
    connection = http.client.HTTPSConnection(via.hostname or "", via.port, timeout=timeout_s, context=context)
    connection.set_tunnel(host, url.port, _proxy_authorization(via))
    return connection


def https_proxy(host: str) -> SplitResult | None:
    """Return the proxy that the environment names for https and a host, None for none.

    Raises OSError for one that is not spoken to in HTTP: it would be asked in the clear, credentials included; and for
    an IPv6 address, which Python 3.11 asks a proxy for without brackets, its last part taken for a port.
    """
    proxy = "" if proxy_bypass(host) else getproxies().get("https", "")
    if not proxy:
        return None
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if via.scheme != "http":
        raise OSError(errno.EPROTONOSUPPORT, "https_proxy names no http proxy: only http://HOST:PORT is supported")
    if ":" in host:
        raise OSError(errno.EAFNOSUPPORT, f"https_proxy is not asked for IPv6 addresses: add {host} to no_proxy")
    return via


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials).decode()}"}


# Ends a connection for a thread that waits for bytes, from another thread. A TLS object belongs to one thread:
# OpenSSL does not lock it. ``SSLSocket.shutdown`` does worse than race: Python drops the TLS object, and from then on
# the other thread reads what is encrypted as if it were the answer, and writes in the clear whatever it sends. So
# nothing but the TCP connection is shut down here: whoever reads sees its end, and closes it.
# https://docs.openssl.org/3.0/man7/openssl-threads/


class HangUp:
    """Hangs up from any thread, as often as one likes; the thread that reads calls `release` when it has ended.

    It has a descriptor of its own: the reader's number may be that of another file by the time that it is used.
    """

    def __init__(self, descriptor: int) -> None:
        """Take a connection by its descriptor, which is copied."""
        self._mutex = threading.Lock()
        self._own: socket.socket | None = socket.socket(fileno=os.dup(descriptor))

    def __call__(self) -> None:
        """End the connection in both directions. After `release` this does nothing."""
        with self._mutex, contextlib.suppress(OSError):  # it has ended already
            if self._own is not None:
                self._own.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let go of the connection."""
        with self._mutex:
            own, self._own = self._own, None
        if own is not None:
            own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()
