"""Ends a connection for a thread that waits for bytes, from another thread.

A TLS object belongs to one thread: OpenSSL does not lock it, and after ``SSLSocket.shutdown`` the other thread goes on
without TLS: it reads what is encrypted as an answer, and sends in the clear. So nothing but the TCP connection is shut
down here; whoever reads sees its end, and closes it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading


class Wire:
    """The connection that was taken last. It has a descriptor of its own: the caller's may be closed meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: socket.socket | None = None

    def take(self, sock: socket.socket) -> None:
        """Be that of this socket from now on."""
        self._put(socket.socket(fileno=os.dup(sock.fileno())))

    def cut(self) -> None:
        """End it, from any thread and as often as one likes."""
        with self._lock, contextlib.suppress(OSError):  # it has ended by itself
            if self._own is not None:
                self._own.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let go of it, as the caller has."""
        self._put(None)

    def _put(self, own: socket.socket | None) -> None:
        with self._lock:
            former, self._own = self._own, own
        if former is not None:
            former.close()
