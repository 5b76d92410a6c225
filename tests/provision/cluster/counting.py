"""Keeps what is asked of an API server, and its answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request, Stream
    from provision.cluster.kubernetes.api.transport import Transport
    from provision.cluster.kubernetes.cluster import KubernetesCluster


class Counting:
    """Keeps requests and answers."""

    def __init__(self, transport: Transport) -> None:
        self.name = transport.name
        self.sent: list[tuple[Request, ApiResponse]] = []
        self.transport = transport

    def send(self, request: Request) -> ApiResponse:
        """Send it."""
        answer = self.transport.send(request)
        self.sent.append((request, answer))
        return answer

    def stream(self, request: Request) -> Stream:
        """Refuse: nothing is watched."""
        raise AssertionError(request)

    def methods(self) -> list[str]:
        """Return how each was asked for."""
        return [request.method for request, _ in self.sent]

    def paths(self) -> list[str]:
        """Return what was asked for."""
        return [request.path for request, _ in self.sent]

    def pages(self, path: str) -> list[list[dict[str, Any]]]:
        """Return the objects of each page of a list."""
        return [json.loads(answer.body)["items"] for request, answer in self.sent if request.path == path]


def count(cluster: KubernetesCluster) -> Counting:
    """Have all that a connection asks from here on kept."""
    counting = Counting(cluster._api._sender)  # type: ignore[arg-type] # the real one
    cluster._api._sender = cluster._acting._sender = counting  # what it only reads, and what it changes
    return counting
