"""Keeps the GpuStacks of a cluster, from a watch."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.base import decoding
from provision.cluster.kubernetes.api.client import NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.watch.mirror import number
from provision.controller.stacks.decode import decode_stack
from provision.controller.stacks.model import Unreadable
from provision.controller.stacks.status import StackStatus
from provision.declaration.spec.model import API_VERSION
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.stacks.model import Stack, StackObject
    from provision.controller.stacks.secret_hosts import SecretHosts

STACKS: Final = "/apis/grapnel.dev/v1alpha1/gpustacks"


def require_served(api: Api) -> None:
    """Raise ClusterError where the cluster has no GpuStacks of the version that is read here."""
    try:
        api.call(Request(method="GET", path=STACKS.rpartition("/")[0]), msgspec.Raw, expected=(NOT_FOUND,))
    except StatusError:
        raise ClusterError(
            f"{api.name} does not serve GpuStacks of {API_VERSION}",
            hint="`kubectl apply -f deploy/crd/gpustacks.yaml`; where it has those of a later version, upgrade the "
            "controller",
        ) from None


@dataclass(frozen=True, slots=True)
class Followed:
    """A GpuStack, the status that it has, who keeps it from going, and since when it is to go."""

    stack: Stack | Unreadable
    status: StackStatus
    version: int = 0
    finalizers: tuple[str, ...] = ()
    deleted: str = ""


class StackBook:
    """All GpuStacks; what a `Watcher` fills. ``wake`` is called when one has another spec, or goes.

    ``hosts`` are as `decode_stack` takes them.
    """

    def __init__(self, wake: Callable[[], None], hosts: SecretHosts | None = None) -> None:
        self._wake, self._hosts = wake, hosts
        self._mutex = threading.Lock()
        self._stacks: dict[str, Followed] = {}
        self._listed: set[str] | None = None

    def all(self) -> dict[str, Followed]:
        """Return every stack by its name."""
        with self._mutex:
            return dict(self._stacks)

    def put(self, thing: StackObject) -> None:
        """Take a stack as it was read or written, unless a newer version is known."""
        meta = thing.metadata
        version = number(meta.resource_version)
        with self._mutex:
            former = self._stacks.get(meta.name)
        if former is not None and former.stack.uid == meta.uid and former.version > version:
            return  # what we wrote ourselves was quicker than the watch
        identity = (meta.uid, meta.generation, meta.deletion_timestamp is not None)
        is_same = former is not None and _identity(former.stack) == identity
        stack = former.stack if former is not None and is_same else _decode(thing, self._hosts)
        found = Followed(stack, read_status(thing.status), version, meta.finalizers, meta.deletion_timestamp or "")
        with self._mutex:
            self._stacks[meta.name] = found
        if not is_same or former is None or former.finalizers != meta.finalizers:
            self._wake()

    def begin(self) -> None:
        """Begin a list."""
        self._listed = set()

    def add(self, thing: StackObject) -> None:
        """Take a stack of the list."""
        if self._listed is not None:
            self._listed.add(thing.metadata.name)
        self.put(thing)

    def settle(self, version: str) -> None:  # one watch at a time: what is not listed has gone
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
            former = self._stacks.get(thing.metadata.name)
            if former is None or former.stack.uid != thing.metadata.uid:
                return
            del self._stacks[thing.metadata.name]
        self._wake()

    def reach(self, version: str) -> None:
        """Nothing depends on it."""


def read_status(found: object) -> StackStatus:
    """Return a status, as far as it can be read: it is written again where it differs from how the stack stands."""
    try:
        return decoding.convert(found or {}, StackStatus)
    except msgspec.ValidationError:
        return StackStatus()


def _decode(thing: StackObject, hosts: SecretHosts | None) -> Stack | Unreadable:
    """Return a stack; an unforeseen error is no reason for the others to be left alone."""
    try:
        return decode_stack(msgspec.to_builtins(thing), hosts)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this stack
        meta = thing.metadata
        return Unreadable(
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            reasons=(f"it cannot be read, which is a bug: {type(error).__name__}: {error}",),
            is_going=meta.deletion_timestamp is not None,
        )


def _identity(stack: Stack | Unreadable) -> tuple[str, int, bool]:
    return stack.uid, stack.generation, stack.is_going
