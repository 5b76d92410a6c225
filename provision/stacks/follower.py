"""Keeps the GpuStacks of a cluster, from a watch."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.stacks.decode import decode_stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.stacks.model import Stack, Unreadable
    from provision.stacks.objects import StackObject
    from provision.stacks.status import StackStatus

STACKS: Final = "/apis/grapnel.dev/v1alpha1/gpustacks"


@dataclass(frozen=True, slots=True)
class Followed:
    """A GpuStack, and the status that it has."""

    stack: Stack | Unreadable
    status: StackStatus


class StackBook:
    """All GpuStacks; what a `Watcher` fills. ``wake`` is called when one has another spec, or goes."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._mutex = threading.Lock()
        self._stacks: dict[str, Followed] = {}
        self._listed: set[str] | None = None

    def all(self) -> dict[str, Followed]:
        """Return every stack by its name."""
        with self._mutex:
            return dict(self._stacks)

    def put(self, thing: StackObject) -> None:
        """Take a stack as it was read or written."""
        name = thing.metadata.name
        with self._mutex:
            former = self._stacks.get(name)
        is_same = former is not None and _identity(former.stack) == (
            thing.metadata.uid,
            thing.metadata.generation,
            thing.metadata.deletion_timestamp is not None,
        )
        stack = former.stack if former is not None and is_same else decode_stack(msgspec.to_builtins(thing))
        with self._mutex:
            self._stacks[name] = Followed(stack, thing.status)
        if not is_same:
            self._wake()

    def begin(self) -> None:
        """Begin a list."""
        self._listed = set()

    def add(self, thing: StackObject) -> None:
        """Take a stack of the list."""
        if self._listed is not None:
            self._listed.add(thing.metadata.name)
        self.put(thing)

    def settle(self, version: str) -> None:  # noqa: ARG002 - one watch at a time: what is not listed has gone
        """Drop those that are not in the list."""
        listed, self._listed = self._listed or set(), None
        with self._mutex:
            for name in self._stacks.keys() - listed:
                del self._stacks[name]
        self._wake()

    def change(self, kind: str, thing: StackObject) -> None:
        """Take a change."""
        if kind != "DELETED":
            self.put(thing)
            return
        with self._mutex:
            self._stacks.pop(thing.metadata.name, None)
        self._wake()

    def reach(self, version: str) -> None:
        """Nothing depends on it."""


def _identity(stack: Stack | Unreadable) -> tuple[str, int, bool]:
    return stack.uid, stack.generation, stack.is_going
