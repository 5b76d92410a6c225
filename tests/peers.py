"""Peers that never come to an end, over real sockets: what they send is dripped, or floods."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Behave = Callable[[socket.socket, threading.Event], None]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def peer(behave: Behave, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Have every client that connects dealt with by ``behave``; yield the port."""
    closed = threading.Event()

    def deal(plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            plain.settimeout(30)
            client = plain if tls is None else tls.wrap_socket(plain, server_side=True)
            with client:
                behave(client, closed)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=deal, args=(listener.accept()[0],)))
                threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=serve)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            closed.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def request_of(client: socket.socket) -> bytes:
    """Return the head of what a client asks."""
    head = b""
    while b"\r\n\r\n" not in head and (piece := client.recv(65536)):
        head += piece
    return head


def dripping(before: bytes, drop: bytes = b"x", every_s: float = 0.02) -> Behave:
    """Read a request, say ``before``, and then a drop again and again."""

    def behave(client: socket.socket, closed: threading.Event) -> None:
        request_of(client)
        client.sendall(before)
        while not closed.wait(every_s):
            client.sendall(drop)

    return behave


def flooding(before: bytes, piece: bytes = b"x" * 65536) -> Behave:
    """Read a request, say ``before``, and then as much as is taken."""

    def behave(client: socket.socket, closed: threading.Event) -> None:
        request_of(client)
        client.sendall(before)
        while not closed.is_set():
            client.sendall(piece)

    return behave


def saying(answer: bytes) -> Behave:
    """Read a request and answer it."""

    def behave(client: socket.socket, _closed: threading.Event) -> None:
        request_of(client)
        client.sendall(answer)

    return behave


def silent(client: socket.socket, closed: threading.Event) -> None:
    """Say a byte of something now and then, from the beginning: no TLS, and no HTTP."""
    client.sendall(b"\x16\x03\x03\x3f\xff")  # a record of TLS that never ends
    while not closed.wait(0.02):
        client.sendall(b"\x02")


ENDLESS = {
    "status line": dripping(b"HTTP/1.1 200 "),
    "headers": dripping(HEAD + b"X-Long: "),
    "more and more headers": dripping(HEAD, b"X: y\r\n", every_s=0.05),
    "continue": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": dripping(HEAD + b"Content-Length: 1000000\r\n\r\n"),
    "body until the end": dripping(HEAD + b"\r\n"),
    "chunks": dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "size of a chunk": dripping(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
}


def certificate(folder: Path, host: str = "127.0.0.1", names: str = "IP:127.0.0.1") -> tuple[str, str]:
    """Make a certificate that is its own authority; return its file and that of its key."""
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subject = ["-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName={names}"]
    subprocess.run([*command, *subject, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key
