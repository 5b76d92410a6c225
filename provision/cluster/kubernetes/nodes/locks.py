"""Reads which nodes other tools hold by objects of their own, where that may be read: kured's lock, NodeMaintenances.

It takes permissions that a rollout can do without; without them, nothing is held by these. What was read last counts
until it is read again, so that a rollout never waits for it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from provision.base.decoding import decoder_of
from provision.cluster.kubernetes.api.exchange import Request
from provision.cluster.kubernetes.nodes.maintenances import MAINTENANCES, NodeMaintenance
from provision.cluster.kubernetes.nodes.polled import Polled
from provision.cluster.kubernetes.objects.core import Metadata, Page
from provision.declaration.spec.model import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from provision.cluster.kubernetes.api.client import Api

DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
KURED: Final = "kured"  # the name of its DaemonSet, unless it is started with --ds-name
LOCK: Final = "weave.works/kured-node-lock"
_SYSTEM: Final = "kube-system"  # where its own manifest has it, and others make no DaemonSets
_MOST: Final = 500
# Before these (NVIDIA's maintenance operator, api/v1alpha1/nodemaintenance_types.go) nothing is done to the node yet.
_NOT_BEGUN: Final = frozenset({"", "Pending", "Scheduled"})


class _Metadata(Metadata, frozen=True, kw_only=True):
    generation: int = 0


class _PodSpec(msgspec.Struct, frozen=True, kw_only=True):
    host_pid: bool = msgspec.field(default=False, name="hostPID")


class _Template(msgspec.Struct, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    template: _Template = _Template()


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    observed_generation: int = 0
    updated_number_scheduled: int = 0


class DaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """A DaemonSet: its annotations, and whether whoever made it may reboot nodes."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def may_reboot(self) -> bool:
        """Whether it is what it is called: whoever may make DaemonSets in some namespace may name one so.

        kured needs the processes of the host. That such pods are there, the API server says: where a namespace does not
        allow them, none is made of the template.
        """
        if self.metadata.namespace == _SYSTEM:
            return True
        is_seen = self.status.observed_generation == self.metadata.generation
        return self.spec.template.spec.host_pid and is_seen and self.status.updated_number_scheduled > 0


class _Lock(msgspec.Struct, frozen=True, kw_only=True):
    node: str = msgspec.field(default="", name="nodeID")
    created: datetime | None = None
    ttl: int = msgspec.field(default=0, name="TTL")  # nanoseconds; 0: for ever


class _LockText(_Lock, frozen=True, kw_only=True):
    """The lock of one node, or of several (kured's --concurrency): pkg/daemonsetlock/daemonsetlock.go."""

    locks: tuple[_Lock, ...] = ()


def kured_holds(sets: Iterable[DaemonSet], now: datetime) -> dict[str, str]:
    """Return why each node is held that kured has its lock for, by the names of Nodes."""
    found = {}
    for each in sets:
        text = each.metadata.annotations.get(LOCK) if each.may_reboot else None
        for lock in () if text is None else _locks(text):
            if lock.node and not _is_expired(lock, now):
                found[lock.node] = (
                    f"kured has its lock for it, to reboot it (annotation {LOCK} of DaemonSet "
                    f"{each.metadata.namespace}/{each.metadata.name}): waits until kured takes it away"
                )
    return found


def maintenance_holds(maintenances: Iterable[NodeMaintenance]) -> dict[str, str]:
    """Return why each node is held that NVIDIA's maintenance operator is at, by the names of Nodes."""
    words = "the maintenance operator has taken it out of service ({}): waits until that is deleted"
    return {
        each.spec.node_name: words.format(each)
        for each in maintenances
        if each.spec.node_name and not each.is_ours and each.state not in _NOT_BEGUN
    }


class Locks:
    """What other tools hold by objects of their own. ``respect`` are the tools that are declared to be respected."""

    def __init__(
        self,
        api: Api,
        respect: Collection[Tool],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._now = api, now
        self._sources: list[Polled[str]] = []
        if Tool.KURED in respect:
            self._sources.append(Polled(self._read_kured, clock))
        if Tool.MAINTENANCE_OPERATOR in respect:
            self._sources.append(Polled(self._read_maintenances, clock))

    def holds(self) -> Mapping[str, str]:
        """Return why Nodes are held, by their names; it is read again when that is due."""
        found: dict[str, str] = {}
        for source in self._sources:
            found |= source.found()
        return found

    def _read_kured(self) -> dict[str, str]:
        query: dict[str, str | int] = {"limit": _MOST, "fieldSelector": f"metadata.name={KURED}"}
        request = Request(method="GET", path=DAEMON_SETS, query=query)
        return kured_holds(self._api.call(request, Page[DaemonSet], patience_s=0).items, self._now())

    def _read_maintenances(self) -> dict[str, str]:
        return maintenance_holds(self._api.list_all(MAINTENANCES, NodeMaintenance))


def _locks(text: str) -> tuple[_Lock, ...]:
    """Return the locks in an annotation; one that cannot be read is none."""
    try:
        found = decoder_of(_LockText).decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return found.locks or (found,)


def _is_expired(lock: _Lock, now: datetime) -> bool:
    if lock.ttl <= 0 or lock.created is None or lock.created.tzinfo is None:
        return False
    return now - lock.created >= timedelta(seconds=lock.ttl / 1e9)
