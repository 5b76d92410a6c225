"""Knows the nodes of a rollout from watches, so that what is asked of the API server grows with what changes.

Watches may be late. What may not be missed is a pod that came to a node before it was cordoned: a node that is being
drained or released and looks empty is read once more, for itself, before anybody is told so.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from provision.cluster.kubernetes.api.parallel import each
from provision.cluster.kubernetes.nodes.names import match_nodes
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.pods.gpu_pods import pod_use
from provision.cluster.kubernetes.watch.mirror import NodeCopy, NodeMirror, PodCopy, PodMirror
from provision.cluster.kubernetes.watch.watcher import Source, Watcher
from provision.rollout.errors import ClusterError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import NodeView, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.pods.gpu_pods import Claims, NodePods
    from provision.cluster.kubernetes.pods.pod_rules import PodRules
    from provision.cluster.machine import Machine

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
ALIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
FEW: Final = 4  # up to so many nodes are asked for one by one, which the API server answers from an index


class Informer:
    """Watches Nodes and pods from `start` to `stop`; everything else belongs to one thread.

    ``only`` are names of Nodes, where they are so few that each is watched by itself; empty: the whole cluster.
    ``seen`` and ``views`` have the Nodes and what was said of them when they were last observed, by names of the
    inventory, and are kept up to date.
    """

    def __init__(
        self,
        api: Api,
        *,
        only: Collection[str],
        see: Callable[[Node], NodeView | NodeProblem],
        rules: PodRules,
        claims: Claims,
        machines: Mapping[str, Machine],
        seen: dict[str, Node],
        views: dict[str, NodeView | NodeProblem],
        wake: Callable[[], None],
    ) -> None:
        self._api, self._machines, self._seen = api, machines, seen
        mutex = threading.RLock()
        self._nodes = NodeMirror(see, wake, mutex)
        self._pods = PodMirror(lambda pod: pod_use(pod, rules, claims), wake, self._is_in_flight, mutex)
        self._watchers: list[Watcher[Any]] = [watcher for name in only or [""] for watcher in self._watchers_of(name)]
        self._called: dict[str, str] = {}  # names of the inventory by those of Nodes
        self._names: tuple[str, ...] = ()
        self._matched: Mapping[str, Machine] = {}
        self._views = views
        self._doubtful: set[str] = set()  # names of Nodes that look empty and have not been read for themselves
        self._empty: dict[str, tuple[str, Phase, object]] = {}  # what was read: uid, phase and its beginning

    def look(self, names: Collection[str]) -> dict[str, NodeView | NodeProblem]:
        """List everything once, and return what is true of each node. Raises ClusterError."""
        for watcher in self._watchers:  # Nodes before pods
            watcher.list()
        self._update(names)
        return {name: self._views[name] for name in names}

    def start(self) -> None:
        """List everything once, and watch from there. Raises ClusterError."""
        for watcher in self._watchers:
            watcher.start()

    def stop(self) -> None:
        """End the watches."""
        for watcher in self._watchers:
            watcher.stop()
        for watcher in self._watchers:
            watcher.join()

    def written(self, node: Node) -> None:
        """Know a Node that was just written."""
        self._nodes.put(node, is_written=True)

    def read(self, node: Node) -> None:
        """Know a Node that was just read."""
        self._nodes.put(node)

    def observe(self, names: Collection[str]) -> dict[str, NodeView | NodeProblem]:
        """Return what is true of each node. Raises ClusterError where that cannot be known."""
        for watcher in self._watchers:
            watcher.check()
        self._update(names)
        if self._doubtful:
            self._read_again(sorted(self._doubtful))
        return {name: self._views[name] for name in names}

    def _update(self, names: Collection[str]) -> None:
        changed, is_moved = self._nodes.take()
        changed |= self._pods.take()
        if is_moved or self._names != tuple(names) or self._matched != self._machines:
            changed |= self._match(names)
        for node in changed & self._called.keys():
            self._look(node, self._pods.on(node))

    def _watchers_of(self, node: str) -> tuple[Watcher[Node], Watcher[Pod]]:
        where = f"spec.nodeName={node}" if node else "spec.nodeName!="
        nodes = Source(path=NODES, item=Node, selector=f"metadata.name={node}" if node else "")
        pods = Source(path=PODS, item=Pod, selector=f"{where},{ALIVE}")
        return (
            Watcher(self._api, nodes, NodeCopy(self._nodes, node)),
            Watcher(self._api, pods, PodCopy(self._pods, node)),
        )

    def _is_in_flight(self, node: str) -> bool:
        entry = self._nodes.get(node)
        return entry is not None and entry.is_in_flight

    def _match(self, names: Collection[str]) -> set[str]:
        """Find the machines among the Nodes; return the names of those Nodes that are found now, and were not."""
        self._names, self._matched = tuple(names), dict(self._machines)
        former, self._called = self._called, {}
        for name, node in match_nodes(names, self._machines, self._nodes.nodes(), self._api.name).items():
            if isinstance(node, NodeProblem):
                self._seen.pop(name, None)
                self._keep(name, node)
            else:
                self._called[node.metadata.name] = name
        return {node for node, name in self._called.items() if former.get(node) != name}

    def _look(self, node: str, pods: NodePods) -> None:
        """See a Node as it is now, with these pods."""
        entry, name = self._nodes.get(node), self._called[node]
        if entry is None:  # it has just gone: the next time, its machine is a problem
            return
        self._seen[name] = entry.node
        view = replace(entry.view, name=name)
        self._doubtful.discard(node)
        if isinstance(view, NodeView):
            view = replace(view, gpu_pods=pods.gpu, jobs=pods.jobs, remarks=(*view.remarks, *pods.remarks))
            if not view.is_cordoned or not _looks_empty(view):
                self._empty.pop(node, None)
            if _looks_empty(view) and self._empty.get(node) != _occasion(entry.node, view):
                self._doubtful.add(node)
        self._keep(name, view)

    def _read_again(self, nodes: list[str]) -> None:
        """Read the pods of Nodes that look empty."""
        for node, answer in zip(nodes, each(self._read, nodes), strict=True):
            if isinstance(answer, ClusterError):
                raise answer
            found = self._pods.confirm(node, *answer)
            if found is not None:
                self._look(node, found)
            view, seen = self._views[self._called[node]], self._seen[self._called[node]]
            if isinstance(view, NodeView) and _looks_empty(view) and view.is_cordoned:  # else a pod may come any moment
                self._doubtful.discard(node)
                self._empty[node] = _occasion(seen, view)

    def _read(self, node: str) -> tuple[list[Pod], str]:
        return self._api.list_moment(PODS, Pod, selector=f"spec.nodeName={node},{ALIVE}")

    def _keep(self, name: str, view: NodeView | NodeProblem) -> None:
        if self._views.get(name) != view:
            self._views[name] = view


def _looks_empty(view: NodeView) -> bool:
    """Tell whether a Node is in a phase that ends when its pods are gone, and has none that has to go."""
    phase = None if view.record is None else view.record.phase
    if phase is Phase.JOBS:
        return not view.jobs
    return phase in (Phase.DRAIN, Phase.RELEASE) and all(pod.is_mirror_or_daemon for pod in view.gpu_pods)


def _occasion(node: Node, view: NodeView) -> tuple[str, Phase, object]:
    assert view.record is not None  # of a node that is being emptied
    return node.metadata.uid, view.record.phase, view.record.since
