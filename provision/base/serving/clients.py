"""Who is connected, until when, and who has to go when there is no room: nobody who holds less than others. Pure.

Places are soon held by somebody who says nothing, or who reads nothing. So a new client always gets in, and the oldest
goes of the network that holds most: of its clients that have not asked for anything yet, if there are any.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")


@dataclass(slots=True)
class _Client:
    network: str
    due: float | None  # when it has to have done what it is to do now
    has_asked: bool = False


class Clients(Generic[Key]):
    """Connections, the oldest first. Times are of one clock. Not safe for threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._clients: dict[Key, _Client] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether somebody is connected and need not go."""
        return key in self._clients

    def __len__(self) -> int:
        """How many there are."""
        return len(self._clients)

    def add(self, key: Key, host: str, due: float) -> Key | None:
        """Let somebody in who has until ``due`` to ask; return who has to go for that, who counts no longer."""
        gone = self._to_disconnect() if len(self._clients) >= self._most else None
        if gone is not None:
            self.discard(gone)
        self._clients[key] = _Client(network_of(host), due)
        return gone

    def asked(self, key: Key, due: float | None) -> None:
        """Remember that somebody has asked, and has until ``due`` to take the answer; None: as long as it likes."""
        if key in self._clients:
            self._clients[key].has_asked = True
            self._clients[key].due = due

    def late(self, now: float) -> list[Key]:
        """Return those whose time is over."""
        return [key for key, client in self._clients.items() if client.due is not None and client.due < now]

    def rename(self, key: Key, other: Key) -> bool:
        """Know somebody by another key from now on; return whether he is still connected."""
        client = self._clients.pop(key, None)
        if client is not None:
            self._clients[other] = client
        return client is not None

    def discard(self, key: Key) -> None:
        """Forget somebody who went."""
        self._clients.pop(key, None)

    def _to_disconnect(self) -> Key:
        counts = Counter(client.network for client in self._clients.values())
        # Of equals `max` returns the first, which is the oldest.
        return max(self._clients, key=lambda key: self._rank(self._clients[key], counts))

    @staticmethod
    def _rank(client: _Client, counts: Counter[str]) -> tuple[int, bool]:
        return counts[client.network], not client.has_asked


def network_of(host: str) -> str:
    """Return what one machine has at its disposal: an IPv4 address, or the 64 bits before its own of an IPv6 one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((int(address), 64), strict=False))
        address = address.ipv4_mapped
    return str(address)
