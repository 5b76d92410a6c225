"""A receiver of webhooks, over real sockets: it answers as it is told, also wrongly, late, or never."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


def status(code: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {code} x", *headers, "Content-Length: 0", "", ""]).encode()


@dataclass
class Got:
    """A request as it came."""

    target: str
    headers: dict[str, str]
    body: bytes


Answer = "bytes | Callable[[socket.socket], None]"


@dataclass
class Server:
    """Answers in the order of ``answers``; the last one stays. ``got`` has every request."""

    answers: list[bytes | Callable[[socket.socket], None]]
    tls: ssl.SSLContext | None = None
    got: queue.SimpleQueue[Got] = field(default_factory=queue.SimpleQueue)

    def __enter__(self) -> Self:
        self.closed = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}/hook/secret-path"

    def _serve(self) -> None:
        while not self.closed.is_set():
            with contextlib.suppress(OSError):
                client, _ = self.listener.accept()
                with client:
                    client.settimeout(30)
                    self._answer(client if self.tls is None else self.tls.wrap_socket(client, server_side=True))

    def _answer(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream:
            _method, target, _version = stream.readline().decode().split()
            headers = {}
            while line := stream.readline().decode().strip():
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            body = stream.read(int(headers["content-length"]))
            self.got.put(Got(target, headers, body))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, bytes):
                client.sendall(answer)
            else:
                answer(client)

    def hang(self, _client: socket.socket) -> None:
        """Say nothing until the test is over."""
        self.closed.wait(60)

    def drip(self, client: socket.socket) -> None:
        """Send a header that never ends, a byte at a time."""
        client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not self.closed.wait(0.02):
            client.sendall(b"x")
