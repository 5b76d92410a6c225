"""Keeps objects with their versions and the changes between them; an object is the bytes that are sent."""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Key = tuple[str, str]  # namespace, empty for a Node, and name


@dataclass(frozen=True, slots=True)
class Stored:
    """An object of one version; ``node`` and ``phase`` are a pod's."""

    key: Key
    version: int
    data: bytes
    node: str = ""
    phase: str = ""

    def load(self) -> dict[str, Any]:
        """Return the object."""
        found: dict[str, Any] = msgspec.json.decode(self.data)
        return found


@dataclass(frozen=True, slots=True)
class Event:
    """A change from one version of an object to another; None: it was not there, or is not any more."""

    version: int
    before: Stored | None
    after: Stored | None


class Store:
    """Objects by kind (``nodes``, ``pods``, ``leases``); safe to be used by several threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 1
        self.forgotten = 0  # watches from versions up to this one are refused
        self.emptied: dict[str, float] = {}  # when the last pod of a Node was deleted, by the monotonic clock
        self._pods_on: Counter[str] = Counter()
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._events: dict[str, list[Event]] = {}

    def put(self, kind: str, thing: dict[str, Any]) -> Stored:
        """Store an object under the next version; a new one gets a UID."""
        with self.changed:
            self.version += 1
            meta = thing["metadata"]
            key = (meta.get("namespace", ""), meta["name"])
            meta["resourceVersion"] = str(self.version)
            meta.setdefault("uid", f"uid-{self.version}")
            stored = Stored(
                key,
                self.version,
                msgspec.json.encode(thing),
                thing.get("spec", {}).get("nodeName", ""),
                thing.get("status", {}).get("phase", ""),
            )
            self._tell(kind, key, stored)
            return stored

    def delete(self, kind: str, key: Key) -> None:
        """Remove an object, if it is there."""
        with self.changed:
            if key in self._objects.get(kind, {}):
                self.version += 1
                self._tell(kind, key, None)

    def get(self, kind: str, key: Key) -> Stored | None:
        """Return an object."""
        with self.changed:
            return self._objects.get(kind, {}).get(key)

    def change(self, kind: str, key: Key, change: Callable[[dict[str, Any]], None]) -> Stored:
        """Change an object that is there."""
        with self.changed:
            thing = self._objects[kind][key].load()
            change(thing)
            return self.put(kind, thing)

    def every(self, kind: str) -> tuple[list[Stored], int]:
        """Return all objects of a kind, and the version of this moment."""
        with self.changed:
            return list(self._objects.get(kind, {}).values()), self.version

    def forget(self) -> None:
        """Refuse every watch from a version before this one."""
        with self.changed:
            self.forgotten = self.version
            self.version += 1

    def since(self, kind: str, position: int) -> list[Event]:
        """Return the events of a kind from a position on."""
        with self.changed:
            return self._events.get(kind, [])[position:]

    def position(self, kind: str, version: int) -> int | None:
        """Return where the events after a version begin; None when it is forgotten."""
        with self.changed:
            if version < self.forgotten:
                return None
            events = self._events.get(kind, [])
            index = len(events)
            while index and events[index - 1].version > version:
                index -= 1
            return index

    def _tell(self, kind: str, key: Key, after: Stored | None) -> None:
        objects = self._objects.setdefault(kind, {})
        before = objects.pop(key, None)
        if after is not None:
            objects[key] = after
        self._events.setdefault(kind, []).append(Event(self.version, before, after))
        if kind == "pods":
            self._count(before, after)
        self.changed.notify_all()

    def _count(self, before: Stored | None, after: Stored | None) -> None:
        if after is not None:
            self._pods_on[after.node] += 1
        if before is not None:
            self._pods_on[before.node] -= 1
            if not self._pods_on[before.node]:
                self.emptied[before.node] = time.monotonic()


@dataclass
class Kubelets:
    """Ends pods that are asked to leave, ``grace_s`` later; 0: at once. ``refuse`` says why one may not be evicted."""

    store: Store
    grace_s: float = 0.0
    refuse: Callable[[Key], str] = lambda _key: ""
    _due: list[tuple[float, Key]] = field(default_factory=list)
    _wake: threading.Event = field(default_factory=threading.Event)
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    def evict(self, key: Key) -> None:
        """Have a pod end."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with contextlib.suppress(KeyError):  # it has just ended
            self.store.change("pods", key, lambda pod: pod["metadata"].setdefault("deletionTimestamp", now))
        if not self.grace_s:
            self.store.delete("pods", key)
            return
        with self._mutex:
            heapq.heappush(self._due, (time.monotonic() + self.grace_s, key))
        self._wake.set()

    def run(self) -> None:
        """Work until `end`."""
        while not self._ended:
            self._wake.clear()
            for key in self._over():
                self.store.delete("pods", key)
            with self._mutex:
                left_s = self._due[0][0] - time.monotonic() if self._due else None
            self._wake.wait(left_s if left_s is None else max(0.0, left_s))

    def end(self) -> None:
        """End `run`."""
        self._ended = True
        self._wake.set()

    def _over(self) -> Iterator[Key]:
        with self._mutex:
            while self._due and self._due[0][0] <= time.monotonic():
                yield heapq.heappop(self._due)[1]
