"""A socket that says the same to everybody, in the place of the node daemon's."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def answering(path: Path, answer: bytes, uid: int = 0) -> Iterator[list[bytes]]:
    """Answer one client, as the user `uid`; what is heard is in the list."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        os.seteuid(uid)
        server.listen()  # the other end is told of who did this
        os.seteuid(0)

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                heard.append(connection.makefile("rb").readline())
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
