"""Changes single nodes on behalf of a person: their skip label, their record, their cordon.

Record and cordon are changed on exactly the version of the node that was decided on, so that an engine at work on it is
refused its next write and observes again. The lease is not needed, and not asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from provision.base.errors import GrapnelError, UsageError
from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.cluster import node_path
from provision.cluster.kubernetes.nodes.maintenances import NAMESPACE, Maintenances, name_of, needs_withdrawal
from provision.cluster.kubernetes.nodes.marks import render_patch, steps_of
from provision.cluster.kubernetes.nodes.names import match_nodes
from provision.cluster.kubernetes.nodes.node_view import view_of
from provision.cluster.kubernetes.nodes.others import SKIP, is_skipped
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.pods.evictions.device_taints import take_back as take_back_taint
from provision.cluster.kubernetes.pods.evictions.requests import requests_of, take_back
from provision.cluster.kubernetes.watch.informer import NODES
from provision.cluster.local.cluster import view_of_entry
from provision.cluster.local.state_file import NOTHING, Entry, editing, read_state, write_state
from provision.cluster.reader import KubernetesReader, StateFileReader
from provision.cluster.record import document_of
from provision.declaration.spec.validate import nearest
from provision.rollout.errors import ConflictError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import NodeView
from provision.rollout.requests import Found, RequestResult, Step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.machine import Machine
    from provision.rollout.requests import Decide, RecordChange
    from provision.rollout.status.model import Reader

_ATTEMPTS: Final = 10


class NodeRequests(Protocol):
    """Where the state of nodes lives, for a person who wants something of single ones."""

    def change(self, node: str, decide: Decide) -> RequestResult:
        """Look at a node, decide, and change what was decided; look and decide again if it was changed meanwhile.

        Raises UsageError where there is no such node, ClusterError.
        """

    def foresee(self, node: str, decide: Decide) -> RequestResult:
        """Look at a node and decide; return what `change` would change, with its steps, and change nothing."""

    def reader(self) -> Reader:
        """Return what reads these nodes, and who is at work."""


class KubernetesRequests:
    """Nodes of a cluster; ``machines`` are what the inventory knows of them, empty for names of Nodes."""

    def __init__(self, api: Api, nodes: Collection[str], machines: Mapping[str, Machine]) -> None:
        self._api = api
        self._names = nodes
        self._machines = machines
        self._found: dict[str, Node] = {}
        self._maintenances = Maintenances(api, api, is_asked=False)

    def reader(self) -> Reader:
        """Return what reads these nodes."""
        return KubernetesReader(self._api, self._names, self._machines)

    def change(self, node: str, decide: Decide) -> RequestResult:
        """Change a node, and only what was decided of it."""
        seen = self._find(node)
        for attempt in range(_ATTEMPTS):
            if attempt:
                seen = self._get(seen, node)
            answer = decide(self._as_found(node, seen))
            if answer.change is None:
                return answer
            left = self._withdraw(seen, answer.change)
            if self._patch(seen, answer.change):
                if answer.change.writes_record and answer.change.record is None:
                    take_back(self._api, seen.metadata.name)  # nothing of it is to be evicted after its upgrade
                    take_back_taint(self._api, seen.metadata.name)
                return replace(answer, words=(*answer.words, *left))
        raise ConflictError(f"node {seen.metadata.name} of {self._api.name} does not come to rest", hint="try again")

    def foresee(self, node: str, decide: Decide) -> RequestResult:
        """Return what would be changed of a node, and of what was requested for it."""
        seen = self._find(node)
        answer = decide(self._as_found(node, seen))
        change = answer.change
        if change is None:
            return answer
        requested: list[object] = []
        words = answer.words
        if change.writes_record and needs_withdrawal(seen, change.record):
            try:
                requested = [each for each in [self._maintenances.requested(seen)] if each is not None]
            except (ForbiddenError, RefusedError) as error:
                words = (*words, f"whether a NodeMaintenance is there cannot be read: {error.message}")
        if change.writes_record and change.record is None:
            requested += requests_of(self._api, seen.metadata.name)
        steps = (*steps_of(_render(seen, change), seen), *(Step("delete", str(each)) for each in requested))
        return replace(answer, words=words, steps=steps)

    def _find(self, name: str) -> Node:
        """Return a Node; the first time, make sure that all are there: nothing is changed beside a misspelt name."""
        if not self._found:
            nodes = self._api.list_all(NODES, Node)
            for each, found in match_nodes(self._names, self._machines, nodes, self._api.name).items():
                if isinstance(found, NodeProblem):
                    near = None if self._machines else nearest(each, [node.metadata.name for node in nodes])
                    raise UsageError(found.message, hint=f"did you mean {near}?" if near else found.hint)
                self._found[each] = found
        return self._found[name]

    def _get(self, before: Node, name: str) -> Node:
        request = Request(method="GET", path=node_path(before))
        try:
            now = self._api.call(request, Node, expected=(NOT_FOUND,))
        except StatusError:
            raise UsageError(f"{name} has just left {self._api.name}", hint="`kubectl get nodes`") from None
        if now.metadata.uid != before.metadata.uid:
            raise GrapnelError(f"{name} has just left {self._api.name} and come back as another node", hint="try again")
        return now

    def _as_found(self, name: str, node: Node) -> Found:
        view = view_of(name, node, self._api.name)
        if isinstance(view, NodeView):
            return Found(view=view)
        known = NodeView(
            name=name,
            record=None,
            is_cordoned=node.spec.unschedulable,
            is_ready=node.is_ready,
            is_skipped=is_skipped(node),
        )
        return Found(view=known, unread=view.message)

    def _withdraw(self, node: Node, change: RecordChange) -> tuple[str, ...]:
        """Withdraw what was requested for an upgrade that ends here; return what to do about what could not be."""
        if not change.writes_record or not needs_withdrawal(node, change.record):
            return ()
        try:
            self._maintenances.withdraw(node)
        except (ForbiddenError, RefusedError) as error:
            command = f"kubectl delete nodemaintenance --namespace {NAMESPACE} {name_of(node.metadata.name)}"
            return (f"its NodeMaintenance is still there ({error.message}): `{command}`",)
        return ()

    def _patch(self, node: Node, change: RecordChange) -> bool:
        """Change the node on exactly this version; return False where there is another one."""
        request = Request(method="PATCH", path=node_path(node), body=_render(node, change), content_type=MERGE_PATCH)
        try:
            self._api.call(request, Node, expected=(CONFLICT, NOT_FOUND))
        except StatusError:
            return False
        return True


def _render(node: Node, change: RecordChange) -> dict[str, Any]:
    """Return the JSON merge patch of a change, on exactly this version of the node."""
    if change.writes_record:
        patch = render_patch(change.record, cordoned=change.cordoned, node=node)
    else:
        patch = {"metadata": {"resourceVersion": node.metadata.resource_version}}
        if change.cordoned is not None:
            patch["spec"] = {"unschedulable": change.cordoned}
    if change.skipped is not None:
        labels: dict[str, Any] = patch["metadata"].setdefault("labels", {})
        labels[SKIP] = "true" if change.skipped else None
    return patch


class StateFileRequests:
    """Machines without a cluster: their entries in the state file of an inventory."""

    def __init__(self, state_file: Path, nodes: Collection[str]) -> None:
        self._path = state_file
        self._names = nodes

    def reader(self) -> Reader:
        """Return what reads these machines."""
        return StateFileReader(self._path, self._names)

    def change(self, node: str, decide: Decide) -> RequestResult:
        """Change an entry; no other process changes the file meanwhile."""
        with editing(self._path) as found:
            before = found.nodes.get(node, NOTHING)
            answer = decide(Found(view=view_of_entry(node, before)))
            if answer.change is not None:
                write_state(self._path, found.nodes | {node: _changed(before, answer.change)}, found.pause)
            return answer

    def foresee(self, node: str, decide: Decide) -> RequestResult:
        """Return what would be changed of an entry."""
        before = read_state(self._path).nodes.get(node, NOTHING)
        answer = decide(Found(view=view_of_entry(node, before)))
        if answer.change is None:
            return answer
        after = _changed(before, answer.change)
        return replace(answer, steps=tuple(_steps_between(before, after, self._path)))


def _changed(before: Entry, change: RecordChange) -> Entry:
    written = None if change.record is None else document_of(change.record)
    return Entry(
        record=written if change.writes_record else before.record,
        cordoned=before.cordoned if change.cordoned is None else change.cordoned,
        skipped=before.skipped if change.skipped is None else change.skipped,
    )


def _steps_between(before: Entry, after: Entry, path: Path) -> Iterator[Step]:
    for key in ("record", "cordoned", "skipped"):
        value = getattr(after, key)
        if value != getattr(before, key):
            yield Step("write" if value else "remove", f"{key} of {path}")
