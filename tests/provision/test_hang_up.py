"""A connection is ended from another thread than the one that reads it, and TLS stays with its reader."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.base.asking import HangUp
from tests import peers

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LINE = b"abcdefghijklmnopqrstuvwxyz\n" * 64
TIMES = 20


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    path = folder / "both.pem"
    path.write_bytes(b"".join(Path(each).read_bytes() for each in peers.certificate(folder)))
    return path


@contextlib.contextmanager
def sender(certificate: Path) -> Iterator[int]:
    """Serve one connection over TLS: lines without end. Yield its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:

        def serve() -> None:
            plain, _ = listener.accept()
            ends.append(stack.enter_context(HangUp(plain.fileno())))
            with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as client:
                while True:
                    client.sendall(LINE)

        ends: list[HangUp] = []
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        for end in ends:
            end()
        thread.join()


@contextlib.contextmanager
def reading(certificate: Path) -> Iterator[ssl.SSLSocket]:
    """Yield a connection to it, from which nothing was read."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    with (
        sender(certificate) as port,
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        trusting.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
    ):
        yield sock


def test_what_is_read_is_never_what_is_encrypted(certificate: Path) -> None:
    """``SSLSocket.shutdown`` in another thread had the reader go on without TLS: ciphertext came as an answer."""
    for _ in range(TIMES):
        with reading(certificate) as sock, HangUp(sock.fileno()) as hang_up:
            read, began = bytearray(), threading.Event()

            def read_on(sock: ssl.SSLSocket = sock, read: bytearray = read, began: threading.Event = began) -> None:
                with contextlib.suppress(OSError):
                    while piece := sock.recv(4096):
                        read.extend(piece)
                        began.set()

            reader = threading.Thread(target=read_on)
            reader.start()
            assert began.wait(30)
            hang_up()
            reader.join(30)
            assert not reader.is_alive()
            assert set(bytes(read)) <= set(LINE)


def test_nothing_is_sent_in_the_clear_after_it(certificate: Path) -> None:
    with reading(certificate) as sock, HangUp(sock.fileno()) as hang_up:
        hang_up()
        assert sock.version() is not None, "it still is TLS"
        with pytest.raises(OSError, match=r"(?i)broken pipe|reset|eof"):
            sock.sendall(b"Authorization: Bearer secret")


def test_it_reaches_no_other_file_that_has_the_number_by_then(certificate: Path) -> None:
    here, there = socket.socketpair()
    with reading(certificate) as sock, HangUp(sock.fileno()) as hang_up, here, there:
        number = sock.fileno()
        sock.close()
        with socket.socket(fileno=os.dup2(here.fileno(), number)):
            hang_up()
            here.send(b"x")
            assert there.recv(1) == b"x"


def test_it_may_be_hung_up_twice_and_after_it_was_released(certificate: Path) -> None:
    with reading(certificate) as sock:
        hang_up = HangUp(sock.fileno())
        hang_up()
        hang_up()
        hang_up.release()
        hang_up.release()
        hang_up()


def test_sockets_of_other_threads_are_shut_down_below_tls() -> None:
    """Of a TLS socket, and of an answer of urllib3, ``shutdown`` takes TLS from under the thread that reads."""
    its_own = re.compile(r"(?<!socket\.socket)\.shutdown\([^)]*SHUT_|\b(raw|response|stream)\.shutdown\(")
    found = {
        str(path.relative_to(ROOT))
        for package in ("provision", "plugin")
        for path in (ROOT / package).rglob("*.py")
        if its_own.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"provision/base/asking.py", "plugin/publication/node_object/api/wire.py"}, (
        "those two have plain sockets"
    )
