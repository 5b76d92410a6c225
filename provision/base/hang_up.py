"""Ends a connection for a thread that waits for bytes, from another thread.

A TLS object belongs to one thread: OpenSSL does not lock it. ``SSLSocket.shutdown`` does worse than race: Python drops
the TLS object, and from then on the other thread reads what is encrypted as if it were the answer, and writes in the
clear whatever it sends. So nothing but the TCP connection is shut down here: whoever reads sees its end, and closes it.
https://docs.openssl.org/3.0/man7/openssl-threads/
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Self


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
