"""How much of what clients send is held at a time, all of them together: who holds most goes first. Pure.

Whoever sends little is served whatever others send: a scheduler's question is small where it names its nodes.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")


class Bodies(Generic[Key]):
    """Bytes that are held for clients. Not safe for threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[Key, int] = {}

    def hold(self, key: Key, count: int) -> tuple[Key, ...]:
        """Hold so many bytes more for somebody; return who has to go for that, for whom nothing is held any more."""
        self._held[key] = self._held.get(key, 0) + count
        gone = []
        while sum(self._held.values()) > self._most:
            largest = max(self._held, key=self._held.__getitem__)
            self.discard(largest)
            gone.append(largest)
        return tuple(gone)

    def discard(self, key: Key) -> None:
        """Hold nothing for somebody any more."""
        self._held.pop(key, None)
