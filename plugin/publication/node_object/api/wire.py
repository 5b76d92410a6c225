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
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Wire:
    """The connection that was taken last. It has a descriptor of its own: the caller's may be closed meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: socket.socket | None = None
        self._is_cut = False

    def take(self, sock: socket.socket) -> None:
        """Be that of this socket from now on; one that comes after `cut` is ended at once."""
        self._put(socket.socket(fileno=os.dup(sock.fileno())))
        if self._is_cut:
            self.cut()

    def cut(self) -> None:
        """End it, from any thread and as often as one likes."""
        self._is_cut = True
        with self._lock, contextlib.suppress(OSError):  # it has ended by itself
            if self._own is not None:
                self._own.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let what is taken from now on be."""
        self._is_cut = False

    def release(self) -> None:
        """Let go of it, as the caller has."""
        self._put(None)

    def _put(self, own: socket.socket | None) -> None:
        with self._lock:
            former, self._own = self._own, own
        if former is not None:
            former.close()


class Patience:
    """Cuts a wire when a thing takes longer than `seconds`, while inside `with`: a byte now and then buys no time.

    Where there are several, one after the other, `again` begins to count for the next; it may have twice as long.
    """

    def __init__(self, wire: Wire, seconds: float) -> None:
        self.is_over = False
        self._wire = wire
        self._seconds = seconds
        self._end_s = time.monotonic() + seconds
        self._left = threading.Event()
        self._lock = threading.Lock()  # so that nothing is cut once it was left
        self._thread = threading.Thread(target=self._watch, name="patience", daemon=True)

    def __enter__(self) -> Self:
        self._wire.mend()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._left.set()

    def again(self) -> None:
        """Begin again to count."""
        self._end_s = time.monotonic() + self._seconds

    def rest(self) -> None:
        """Count no longer, until `again`."""
        self._end_s = float("inf")

    def _watch(self) -> None:
        while True:
            left_s = self._end_s - time.monotonic()
            if left_s <= 0:
                break
            if self._left.wait(min(left_s, self._seconds)):
                return
        with self._lock:
            if not self._left.is_set():
                self.is_over = True
                self._wire.cut()
