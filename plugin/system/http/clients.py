"""Who is connected, what is held for them, and who has to go when there is no room. Pure.

Sixteen connections are soon held by a client that says nothing. So a new one always gets in, and the oldest goes of the
network that holds most, of those who have not asked for anything yet if there are any. Of bodies, whoever holds most
goes first: who sends little is served whatever others send.
"""

from __future__ import annotations

import socket
from collections import Counter
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Clients(Generic[Key]):
    """Connections, the oldest first, and bytes that are held for them. Not safe for threads."""

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._networks: dict[Key, bytes] = {}
        self._silent: set[Key] = set()
        self._held: dict[Key, int] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._networks)

    def __contains__(self, key: Key) -> bool:
        """Whether a client is connected and need not go."""
        return key in self._networks

    def all(self) -> tuple[Key, ...]:
        """Return every client."""
        return tuple(self._networks)

    def add(self, key: Key, host: str) -> Key | None:
        """Let a client in; return the one that has to go for that, which counts no longer."""
        gone = self._to_disconnect() if len(self._networks) >= self._most else None
        if gone is not None:
            self.discard(gone)
        self._networks[key] = network_of(host)
        self._silent.add(key)
        return gone

    def asked(self, key: Key) -> None:
        """Remember that a client has sent a request."""
        self._silent.discard(key)

    def hold(self, key: Key, count: int) -> tuple[Key, ...]:
        """Hold so many bytes more for a client; return those that have to go for that, which count no longer."""
        self._held[key] = self._held.get(key, 0) + count
        gone = []
        while sum(self._held.values()) > self._most_bytes:
            largest = max(self._held, key=self._held.__getitem__)
            self.discard(largest)
            gone.append(largest)
        return tuple(gone)

    def discard(self, key: Key) -> None:
        """Forget a client that went."""
        self._networks.pop(key, None)
        self._silent.discard(key)
        self._held.pop(key, None)

    def _to_disconnect(self) -> Key:
        counts = Counter(self._networks.values())
        # Of equals `max` returns the first, which is the oldest.
        return max(self._networks, key=lambda key: (counts[self._networks[key]], key in self._silent))


def network_of(host: str) -> bytes:
    """Return what one machine has at its disposal: an IPv4 address, or the 64 bits before its own of an IPv6 one."""
    if ":" not in host:
        return host.encode()
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8]
