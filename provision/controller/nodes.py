"""Keeps what the controller has to know of every Node, from a watch. A fleet of thousands is kept in memory."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from sys import intern
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.nodes.marks import AS_DECLARED
from provision.cluster.kubernetes.nodes.node_marks import MARKS
from provision.cluster.kubernetes.nodes.node_view import DRIVER_READY, view_of
from provision.cluster.kubernetes.watch.mirror import number
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.rollout.model import Record

FAILED: Final = "grapnel.dev/failed"  # annotation: with what a rollout has left the node failed
DRIFT: Final = "GPUNodeAsDeclared"  # condition: what the node found when it last compared itself
_NO_NEWS: Final = frozenset(("version", "said"))
NOT_READY: Final = "grapnel.dev/not-ready"  # taint: the node has just joined, and is not provisioned yet


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A Node as it was last seen.

    ``as_declared`` and ``failed`` are what its annotations say. ``is_silent``: its kubelet is not heard of any more.
    ``is_joining``: it has the start-up taint. ``is_out``: it takes no pods, is not ready, or another tool is at it;
    ``back_s`` is when that was over last, other than by its own upgrade, None where it was not seen.
    ``is_drifted``: it has found by itself that it is not as declared. ``has_marks``: labels or taints of it are
    grapnel's. ``problem`` is what is wrong with its record, for people; ``said`` is when its daemon has spoken last.
    """

    name: str
    uid: str
    version: int
    labels: Mapping[str, str] = field(default_factory=dict)
    boot: str = ""
    kernel: str = ""
    is_ready: bool = False
    is_silent: bool = False
    is_joining: bool = False
    is_out: bool = False
    is_skipped: bool = False
    is_drifted: bool = False
    has_marks: bool = False
    as_declared: str = ""
    failed: str = ""
    record: Record | None = None
    driver: str = ""
    problem: str = ""
    said: str = ""
    back_s: float | None = None

    @property
    def is_out_by_others(self) -> bool:
        """Whether it is out of service for another reason than its own upgrade."""
        return self.is_out and not self.is_in_flight

    @property
    def is_in_flight(self) -> bool:
        """Whether its upgrade is under way."""
        return self.record is not None and not self.record.phase.is_over

    @property
    def is_out_of_service(self) -> bool:
        """Whether its upgrade has it out of service: it is under way, or has failed."""
        return self.record is not None and not self.record.phase.is_in_service

    @property
    def is_unfinished(self) -> bool:
        """Whether its last upgrade has come to no good end: it failed, or goes on."""
        return self.record is not None and self.record.phase is not Phase.DONE

    @property
    def is_left_failed(self) -> bool:
        """Whether a rollout has left it failed, or as it was before, and no other try was asked for."""
        record = self.record
        return record is not None and record.phase.is_over and record.has_failed and not record.retry

    @property
    def is_retried(self) -> bool:
        """Whether another try was asked for."""
        return self.record is not None and self.record.retry


def see(node: Node) -> SeenNode:
    """Return what is kept of a Node."""
    meta, info = node.metadata, node.status.node_info
    view = view_of(meta.name, node, "the cluster")
    problem = view if isinstance(view, NodeProblem) else None
    known = None if isinstance(view, NodeProblem) else view
    return SeenNode(
        name=meta.name,
        uid=meta.uid,
        version=number(meta.resource_version),
        labels={intern(key): intern(value) for key, value in meta.labels.items()},  # most are those of every Node
        boot=info.boot_id,
        kernel=info.kernel_version,
        is_ready=node.is_ready,
        is_silent=any(each.type == "Ready" and each.status == "Unknown" for each in node.status.conditions),
        is_joining=any(taint.key == NOT_READY for taint in node.spec.taints),
        is_out=node.spec.unschedulable or not node.is_ready or (known is not None and bool(known.held_by)),
        is_skipped=known is not None and known.is_skipped,
        is_drifted=any(each.type == DRIFT and each.status == "False" for each in node.status.conditions),
        has_marks=MARKS in meta.annotations,
        as_declared=meta.annotations.get(AS_DECLARED, ""),
        failed=meta.annotations.get(FAILED, ""),
        record=None if known is None else known.record,
        driver="" if known is None else known.driver,
        problem="" if problem is None else f"{problem.message} ({problem.hint})",
        said=next((each.last_heartbeat_time or "" for each in node.status.conditions if each.type == DRIVER_READY), ""),
    )


def _same(one: SeenNode, other: SeenNode) -> bool:
    """Tell whether a Node has changed in nothing but its version: heartbeats of kubelet and daemon are no news."""
    return all(
        getattr(one, name) == getattr(other, name) for name in SeenNode.__dataclass_fields__ if name not in _NO_NEWS
    )


class NodeBook:
    """All Nodes; what a `Watcher` fills. ``wake`` is called when one has changed in what matters."""

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._wake, self._clock = wake, clock
        self._mutex = threading.Lock()
        self._nodes: dict[str, SeenNode] = {}
        self._listed: set[str] | None = None

    def all(self) -> dict[str, SeenNode]:
        """Return every Node by its name."""
        with self._mutex:
            return dict(self._nodes)

    def get(self, name: str) -> SeenNode | None:
        """Return a Node, None if there is none of that name."""
        with self._mutex:
            return self._nodes.get(name)

    def put(self, node: Node) -> None:
        """Take a Node as it was read or written, unless a newer version is known."""
        seen = see(node)
        with self._mutex:
            former = self._nodes.get(seen.name)
            if former is not None and former.version > seen.version:
                return
            if former is not None and former.labels == seen.labels:
                seen = replace(seen, labels=former.labels)  # known by being the same object, as well
            if former is not None and (back_s := self._back_s(former, seen)) is not None:
                seen = replace(seen, back_s=back_s)
            self._nodes[seen.name] = seen
            is_news = former is None or not _same(former, seen)
        if is_news:
            self._wake()

    def _back_s(self, former: SeenNode, seen: SeenNode) -> float | None:
        return self._clock() if former.is_out_by_others and not seen.is_out else former.back_s

    def begin(self) -> None:
        """Begin a list."""
        self._listed = set()

    def add(self, thing: Node) -> None:
        """Take a Node of the list."""
        if self._listed is not None:
            self._listed.add(thing.metadata.name)
        self.put(thing)

    def settle(self, version: str) -> None:
        """Drop those that are not in the list."""
        listed, self._listed = self._listed or set(), None
        with self._mutex:
            gone = [
                name for name, each in self._nodes.items() if name not in listed and each.version <= number(version)
            ]
            for name in gone:
                del self._nodes[name]
        self._wake()

    def change(self, kind: str, thing: Node) -> None:
        """Take a change."""
        if kind != "DELETED":
            self.put(thing)
            return
        with self._mutex:
            former = self._nodes.get(thing.metadata.name)
            if former is None or former.version > number(thing.metadata.resource_version):
                return
            del self._nodes[thing.metadata.name]
        self._wake()

    def reach(self, version: str) -> None:
        """Nothing depends on it."""
