"""Lets a controller be killed at a request: that one and no later one reaches the API server."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Sender
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request, Stream


class KilledError(Exception):
    """The process is gone: its threads are only what a test has left of it."""


@dataclass
class MortalSender:
    """Sends what ``sender`` sends until the ``last`` write of an object, 0 for none; the lease does not count."""

    sender: Sender
    last: int
    writes: list[str] = field(default_factory=list)
    is_dead: threading.Event = field(default_factory=threading.Event)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return self.sender.name

    def send(self, request: Request) -> ApiResponse:
        with self._mutex:
            if request.method != "GET" and "/leases" not in request.path and not request.path.endswith("/status"):
                self.writes.append(f"{request.method} {request.path}")
                if len(self.writes) == self.last:
                    self.is_dead.set()
            self._require_life()
        return self.sender.send(request)

    def stream(self, request: Request) -> Stream:
        self._require_life()
        return self.sender.stream(request)

    def _require_life(self) -> None:
        if self.is_dead.is_set():
            raise KilledError
