"""The HTTP server of the standard library, bounded, so that nobody who can connect keeps it from others.

Each client has a thread of its own and one request. It has so long to send it, head and body, and so long again to take
the answer; both are ended from the accept loop, so that a drop at a time resets no clock. What it sends is bounded
before it is read. Who has to go when there is no room is `clients`.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import ipaddress
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    import ssl

MAX_HEAD: Final = 32 * 1024  # bytes of a request line and all headers; a browser's are a few thousand
_ENDING: Final = 2  # so many times the clients are threads, while some have yet to notice that they were disconnected
_ROOM_S: Final = 2.0  # for so long others wait to be let in then, in the kernel's queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may cost: their number, and seconds for a whole request and for a whole answer."""

    clients: int
    ask_s: float
    take_s: float


class BoundedServer(ThreadingHTTPServer):
    """Serves one request a connection. `serve_forever` runs until `shutdown`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BoundedHandler],
        limits: Limits,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._limits = limits
        self._tls = tls
        self._mutex = threading.Condition()  # around the two below, and around every close of a connection
        self._clients: Clients[socket.socket] = Clients(limits.clients)
        self._served: set[socket.socket] = set()  # those that have a thread, which may have yet to notice its end
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without asking a resolver for this machine's name, as the base class would."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a client in, and disconnect the one that has to go for it."""
        with self._mutex:
            if not self._mutex.wait_for(lambda: len(self._served) < _ENDING * self._limits.clients, _ROOM_S):
                return False
            self._served.add(request)
            gone = self._clients.add(request, client_address[0], time.monotonic() + self._limits.ask_s)
            if gone is not None:
                _hang_up(gone)
            return True

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer on the client's own thread; that is where TLS is agreed on, too."""
        request.settimeout(self._limits.ask_s)
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        # Without the handshake yet: it is ended like everything else, by the socket that is known here.
        secured = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        with self._mutex:
            is_connected = self._clients.rename(request, secured)
        try:
            if is_connected:
                secured.do_handshake()
                super().finish_request(secured, client_address)
        finally:
            self._close(secured)

    def close_request(self, request: Any) -> None:
        """Forget a client, and let go of its connection; its thread ends."""
        self._close(request)
        with self._mutex:
            self._served.discard(request)
            self._mutex.notify()

    def understood(self, connection: socket.socket) -> None:
        """Note that a client has sent all of its request; it has to take the answer in time."""
        with self._mutex:
            self._clients.asked(connection, time.monotonic() + self._limits.take_s)

    def streams(self, connection: socket.socket) -> None:
        """Note that a client's answer goes on for as long as it takes what it is sent."""
        with self._mutex:
            self._clients.asked(connection, None)

    def holds(self, connection: socket.socket) -> bool:
        """Tell whether a client is still connected as far as this end is concerned."""
        with self._mutex:
            return connection in self._clients

    def service_actions(self) -> None:
        """End connections whose time is over; called every half second."""
        with self._mutex:
            for client in self._clients.late(time.monotonic()):
                _hang_up(client)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away or talks nonsense is no news."""

    def _close(self, connection: socket.socket) -> None:
        with self._mutex:  # whoever is known is open, so that nothing else is hung up on
            self._clients.discard(connection)
            connection.close()


class BoundedHandler(BaseHTTPRequestHandler):
    """One connection. A head that is too long is refused before all of it is read."""

    server: BoundedServer
    server_version = "grapnel"
    sys_version = ""

    def setup(self) -> None:
        """Have the lines of the head counted."""
        super().setup()
        self.rfile = _Head(self.rfile)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # not repeated
        """Say what is wrong with a request by its code alone: the base class repeats the request, in a page of HTML."""
        self.close_connection = True
        self.send_response(code)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Keep no log: who looks is nobody's business."""


class _Head(io.BufferedIOBase):
    """What a client sends. Its lines are those of the head, as nothing reads a body by lines."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._left = MAX_HEAD

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line; raises HTTPException when the head is too long, which is answered with 431."""
        most = self._left + 1 if size is None or size < 0 else min(size, self._left + 1)
        line = self._stream.readline(most)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.HTTPException(f"the head has more than {MAX_HEAD} bytes")
        return line

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes of the body, fewer where it ends before."""
        return self._stream.read(size)

    def close(self) -> None:
        """Close what is read from."""
        self._stream.close()
        super().close()


def _hang_up(client: socket.socket) -> None:
    """End a connection for the thread that reads or writes it: below TLS, see ``hang_up``."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(client, socket.SHUT_RDWR)


# Who is connected, until when, and who has to go when there is no room: nobody who holds less than others. Places are
# soon held by somebody who says nothing, or who reads nothing. So a new client always gets in, and the oldest goes of
# the network that holds most: of its clients that have not asked for anything yet, if there are any.

Key = TypeVar("Key")


@dataclass(slots=True)
class _Client:
    network: str
    due: float | None  # when it has to have done what it is to do now
    has_asked: bool = False


class Clients(Generic[Key]):
    """Connections, the oldest first. Times are of one clock. Not safe for threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._clients: dict[Key, _Client] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether somebody is connected and need not go."""
        return key in self._clients

    def __len__(self) -> int:
        """How many there are."""
        return len(self._clients)

    def add(self, key: Key, host: str, due: float) -> Key | None:
        """Let somebody in who has until ``due`` to ask; return who has to go for that, who counts no longer."""
        gone = self._to_disconnect() if len(self._clients) >= self._most else None
        if gone is not None:
            self.discard(gone)
        self._clients[key] = _Client(network_of(host), due)
        return gone

    def asked(self, key: Key, due: float | None) -> None:
        """Remember that somebody has asked, and has until ``due`` to take the answer; None: as long as it likes."""
        if key in self._clients:
            self._clients[key].has_asked = True
            self._clients[key].due = due

    def late(self, now: float) -> list[Key]:
        """Return those whose time is over."""
        return [key for key, client in self._clients.items() if client.due is not None and client.due < now]

    def rename(self, key: Key, other: Key) -> bool:
        """Know somebody by another key from now on; return whether he is still connected."""
        client = self._clients.pop(key, None)
        if client is not None:
            self._clients[other] = client
        return client is not None

    def discard(self, key: Key) -> None:
        """Forget somebody who went."""
        self._clients.pop(key, None)

    def _to_disconnect(self) -> Key:
        counts = Counter(client.network for client in self._clients.values())
        # Of equals `max` returns the first, which is the oldest.
        return max(self._clients, key=lambda key: self._rank(self._clients[key], counts))

    @staticmethod
    def _rank(client: _Client, counts: Counter[str]) -> tuple[int, bool]:
        return counts[client.network], not client.has_asked


def network_of(host: str) -> str:
    """Return what one machine has at its disposal: an IPv4 address, or the 64 bits before its own of an IPv6 one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((int(address), 64), strict=False))
        address = address.ipv4_mapped
    return str(address)
