"""Keeps what matters of a cluster's Nodes and pods as they change: of a pod, whether it has a GPU; of a Node, its view.

Objects are taken in whatever order they come: an older version never replaces a newer one. Versions of one kind are
numbers that grow (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from provision.cluster.kubernetes.nodes.marks import AS_DECLARED, LOOKED_AT, UPGRADE
from provision.cluster.kubernetes.nodes.node_marks import MARKS
from provision.cluster.kubernetes.objects.core import Metadata
from provision.cluster.kubernetes.objects.nodes import NodeStatus
from provision.cluster.kubernetes.pods.gpu_pods import node_pods
from provision.rollout.interface.cluster import NodeProblem

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection

    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.cluster.kubernetes.objects.pods import Pod
    from provision.cluster.kubernetes.pods.gpu_pods import NodePods, PodUse
    from provision.rollout.model import NodeView

_Key = tuple[str, str]  # namespace and name


def number(version: str) -> int:
    """Return a version as a number, to be compared; 0 for one that is none."""
    return int(version) if version.isdecimal() else 0


def essence(node: Node) -> Node:
    """Return what a write and the match with a machine need of a Node: a fleet of thousands is kept in memory."""
    meta = node.metadata
    return msgspec.structs.replace(
        node,
        metadata=Metadata(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            annotations={
                key: meta.annotations[key]
                for key in (UPGRADE, MARKS, AS_DECLARED, LOOKED_AT)
                if key in meta.annotations
            },
        ),
        spec=node.spec,  # cordon and taints, which a write replaces together
        status=NodeStatus(addresses=node.status.addresses, node_info=node.status.node_info),
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """A Node: what is kept of it, and what is seen of it, under its own name and without pods."""

    node: Node
    view: NodeView | NodeProblem

    @property
    def version(self) -> int:
        """The version of the Node."""
        return number(self.node.metadata.resource_version)

    @property
    def is_in_flight(self) -> bool:
        """Whether its upgrade is under way."""
        return (
            not isinstance(self.view, NodeProblem)
            and self.view.record is not None
            and not self.view.record.phase.is_over
        )


class NodeMirror:
    """The Nodes of a cluster, or with ``only`` that one. ``wake`` is called when a view has changed."""

    def __init__(
        self, see: Callable[[Node], NodeView | NodeProblem], wake: Callable[[], None], mutex: threading.RLock
    ) -> None:
        self._see, self._wake, self._mutex = see, wake, mutex
        self._entries: dict[str, Entry] = {}
        self._changed: set[str] = set()
        self._is_moved = True

    def take(self) -> tuple[set[str], bool]:
        """Return the names of Nodes that have changed since the last call, and whether machines may be others now."""
        with self._mutex:
            found = self._changed, self._is_moved
            self._changed, self._is_moved = set(), False
            return found

    def get(self, name: str) -> Entry | None:
        """Return a Node, None if there is none of that name."""
        with self._mutex:
            return self._entries.get(name)

    def nodes(self) -> list[Node]:
        """Return all of them."""
        with self._mutex:
            return [entry.node for entry in self._entries.values()]

    def put(self, node: Node, *, is_written: bool = False) -> None:
        """Take a Node as it was read or written, unless a newer one is known, or one that was written has gone."""
        name, view = node.metadata.name, self._see(node)
        entry = Entry(essence(node), view)
        with self._mutex:
            former = self._entries.get(name)
            if is_written if former is None else entry.version < former.version:
                return
            self._changed.add(name)
            self._is_moved = self._is_moved or former is None or not _is_same_machine(former.node, entry.node)
            is_new = former is None or former.view != view
            self._entries[name] = entry
        if is_new and not is_written:  # who writes looks again anyway
            self._wake()

    def drop(self, name: str, version: int) -> None:
        """Know that a Node was gone at that version."""
        with self._mutex:
            former = self._entries.get(name)
            if former is None or former.version > version:
                return
            del self._entries[name]
            self._changed.add(name)
            self._is_moved = True
        self._wake()

    def names(self) -> list[str]:
        """Return the names of all."""
        with self._mutex:
            return list(self._entries)


class NodeCopy:
    """What a watcher of Nodes fills: all of them, or ``only`` one."""

    def __init__(self, mirror: NodeMirror, only: str = "") -> None:
        self._mirror, self._only = mirror, only
        self._listed: set[str] = set()

    def begin(self) -> None:
        """Begin a list."""
        self._listed = set()

    def add(self, thing: Node) -> None:
        """Take a Node of the list."""
        self._listed.add(thing.metadata.name)
        self._mirror.put(thing)

    def settle(self, version: str) -> None:
        """Drop those that are not in the list."""
        for name in [self._only] if self._only else self._mirror.names():
            if name not in self._listed:
                self._mirror.drop(name, number(version))
        self._listed = set()

    def change(self, kind: str, thing: Node) -> None:
        """Take a change."""
        if kind == "DELETED":
            self._mirror.drop(thing.metadata.name, number(thing.metadata.resource_version))
        else:
            self._mirror.put(thing)

    def reach(self, version: str) -> None:
        """Nothing depends on it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    use: PodUse


class PodMirror:
    """The pods that matter to their Nodes. ``wake`` is called when one changes on a Node that ``matters``."""

    def __init__(
        self,
        see: Callable[[Pod], PodUse | None],
        wake: Callable[[], None],
        matters: Callable[[str], bool],
        mutex: threading.RLock,
    ) -> None:
        self._see, self._wake, self._matters, self._mutex = see, wake, matters, mutex
        self._pods: dict[_Key, _Kept] = {}
        self._keys: dict[str, set[_Key]] = {}
        self._changed: set[str] = set()
        self._reached: dict[str, int] = {}

    def take(self) -> set[str]:
        """Return the names of Nodes whose pods have changed since the last call."""
        with self._mutex:
            found, self._changed = self._changed, set()
            return found

    def on(self, node: str) -> NodePods:
        """Return the pods of a Node."""
        with self._mutex:
            return node_pods(self._pods[key].use for key in self._keys.get(node, ()))

    def put(self, pod: Pod) -> None:
        """Take a pod as it was read, unless a newer one is known."""
        key, version = (pod.metadata.namespace, pod.metadata.name), number(pod.metadata.resource_version)
        use = self._see(pod)
        with self._mutex:
            former = self._pods.get(key)
            if former is not None and version < former.version:
                return
            if use is None or (former is not None and former.use.node != use.node):
                self._remove(key)
            if use is None:
                return
            self._pods[key] = _Kept(version, use)
            self._keys.setdefault(use.node, set()).add(key)
            if former is None or former.use != use:
                self._touch(use.node)

    def drop(self, key: _Key, version: int) -> None:
        """Know that a pod was gone at that version."""
        with self._mutex:
            former = self._pods.get(key)
            if former is not None and former.version <= version:
                self._remove(key)

    def settle(self, listed: Collection[_Key], version: str, only: str) -> None:
        """Know that these were all at that version, of one Node or of all."""
        with self._mutex:
            for key in list(self._keys.get(only, ()) if only else self._pods):
                if key not in listed:
                    self.drop(key, number(version))
            self.reach(version, only)

    def reach(self, version: str, only: str) -> None:
        """Know that nothing else has changed up to that version."""
        with self._mutex:
            self._reached[only] = max(self._reached.get(only, 0), number(version))

    def confirm(self, node: str, pods: Collection[Pod], version: str) -> NodePods | None:
        """Return the pods of a Node after a read of it at that version; None where it found what is known here.

        Where it is not older than what is known here, it is believed; else its pods may have gone since: they are
        returned, and are not kept.
        """
        read = node_pods(use for use in map(self._see, pods) if use is not None)
        with self._mutex:
            if read == self.on(node):
                return None
            if number(version) < max(self._reached.get(node, 0), self._reached.get("", 0)):
                self._touch(node)
                return read if read.gpu or read.jobs else self.on(node)
            for pod in pods:
                self.put(pod)
            there = {(pod.metadata.namespace, pod.metadata.name) for pod in pods}
            for key in self._keys.get(node, set()) - there:
                self.drop(key, number(version))
            return self.on(node)

    def _remove(self, key: _Key) -> None:
        former = self._pods.pop(key, None)
        if former is not None:
            node = former.use.node
            self._keys[node].discard(key)
            if not self._keys[node]:
                del self._keys[node]
            self._touch(node)

    def _touch(self, node: str) -> None:
        self._changed.add(node)
        if self._matters(node):
            self._wake()


class PodCopy:
    """What a watcher of pods fills: all of them, or those of ``only`` one Node."""

    def __init__(self, mirror: PodMirror, only: str = "") -> None:
        self._mirror, self._only = mirror, only
        self._listed: set[_Key] = set()

    def begin(self) -> None:
        """Begin a list."""
        self._listed = set()

    def add(self, thing: Pod) -> None:
        """Take a pod of the list."""
        self._listed.add((thing.metadata.namespace, thing.metadata.name))
        self._mirror.put(thing)

    def settle(self, version: str) -> None:
        """Drop those that are not in the list."""
        self._mirror.settle(self._listed, version, self._only)
        self._listed = set()

    def change(self, kind: str, thing: Pod) -> None:
        """Take a change; DELETED are also those that have ended."""
        if kind == "DELETED":
            version = number(thing.metadata.resource_version)
            self._mirror.drop((thing.metadata.namespace, thing.metadata.name), version)
        else:
            self._mirror.put(thing)

    def reach(self, version: str) -> None:
        """Know how far this is."""
        self._mirror.reach(version, self._only)


def _is_same_machine(one: Node, other: Node) -> bool:
    return one.metadata.uid == other.metadata.uid and one.status == other.status
