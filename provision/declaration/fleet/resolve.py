"""Asks the resolver for the addresses of hosts, many at once and for a bounded time."""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.declaration.fleet.inventory import Host
    from provision.declaration.fleet.model import FleetNode

RESOLVE_S: Final = 10.0  # for all hosts together
_AT_ONCE: Final = 32


def resolve(hosts: Collection[str], *, timeout_s: float = RESOLVE_S) -> dict[str, frozenset[str]]:
    """Return the addresses of every host; none for one that the resolver does not know, or not in time.

    An address stands for itself. The threads are daemons: one whose question hangs does not keep the process.
    """
    found = {host: _literal(host) for host in hosts if host}
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    # Not a SimpleQueue: of CPython, its get may wait for ever with a short timeout.
    answers: queue.Queue[tuple[str, frozenset[str]]] = queue.Queue()
    unknown = [host for host, addresses in found.items() if not addresses]
    for host in unknown:
        asked.put(host)
    for _ in range(min(_AT_ONCE, len(unknown))):
        threading.Thread(target=_work, args=(asked, answers), name="resolve", daemon=True).start()
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(queue.Empty):
        for _ in unknown:
            host, addresses = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            found[host] = addresses
    return found


def resolve_nodes(nodes: Collection[FleetNode] | Collection[Host]) -> dict[str, frozenset[str]]:
    """Return the addresses that are connected to, by the names of nodes; none for one that is reached otherwise."""
    found = resolve({node.endpoint.network_host for node in nodes})
    return {node.name: found.get(node.endpoint.network_host, frozenset()) for node in nodes}


def _work(asked: queue.SimpleQueue[str], answers: queue.Queue[tuple[str, frozenset[str]]]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            host = asked.get_nowait()
            answers.put((host, _ask(host)))


def _ask(host: str) -> frozenset[str]:
    try:
        answer = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(str(address[0]) for *_, address in answer)


def _literal(host: str) -> frozenset[str]:
    try:
        return frozenset({str(ipaddress.ip_address(host.strip("[]")))})
    except ValueError:
        return frozenset()
