"""Requests maintenance of nodes from NVIDIA's maintenance operator, and withdraws it, as gpu-operator's requestor does.

A NodeMaintenance (Mellanox/maintenance-operator, api/v1alpha1/nodemaintenance_types.go) is scheduled by the operator
among those of other requestors, and is ready when its condition Ready is "True". gpu-operator's side of it is
NVIDIA/k8s-operator-libs, pkg/upgrade/upgrade_requestor.go.

Cordon and drain stay grapnel's: the object asks for neither. ``cordon: false`` is not enough for that, since the
operator writes the object back without the key, whose default is true: the operator's own annotation for a node that
was cordoned before keeps it from cordoning it, and from uncordoning it at the end (internal/cordon/cordon.go). Its
garbage collector, which would end a maintenance after 1,600 s, is told to leave the object alone
(internal/controller/garbage_collector_controller.go). With its Node, Kubernetes deletes the object as well.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from provision.cluster.errors import RefusedError
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.nodes.marks import former_record
from provision.cluster.kubernetes.nodes.polled import Polled
from provision.cluster.kubernetes.objects.core import Condition, Metadata
from provision.rollout.model import Maintenance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.rollout.model import Record

MAINTENANCES: Final = "/apis/maintenance.nvidia.com/v1alpha1/nodemaintenances"
NAMESPACE: Final = "default"  # where gpu-operator has its own, unless it is told otherwise
OURS: Final = f"/apis/maintenance.nvidia.com/v1alpha1/namespaces/{NAMESPACE}/nodemaintenances"
REQUESTOR: Final = "grapnel.dev"
CORDONED_BEFORE: Final = "maintenance.nvidia.com/node-initial-state.unschedulable"
NOT_COLLECTED: Final = "maintenance.nvidia.com/garbage-collector.ignore"
POLL_S: Final = 5.0  # the operator itself looks every 10 s
_LONGEST_NAME: Final = 253
NOT_REQUESTED: Final = Maintenance(words="requests a NodeMaintenance of the maintenance operator")


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str = ""
    requestor_id: str = msgspec.field(default="", name="requestorID")


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class NodeMaintenance(msgspec.Struct, frozen=True, kw_only=True):
    """A request to NVIDIA's maintenance operator to take a node out of service."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def is_ours(self) -> bool:
        """Whether grapnel has requested it: there is one of ours for a Node, and others may call themselves so."""
        return self.spec.requestor_id == REQUESTOR and self.metadata.name == name_of(self.spec.node_name)

    @property
    def state(self) -> str:
        """How far the operator is with it, in its word; empty before it has seen it."""
        return next((one.reason for one in self.status.conditions if one.type == "Ready"), "")

    @property
    def is_ready(self) -> bool:
        """Whether the node may be maintained."""
        is_true = any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)
        return is_true and self.metadata.deletion_timestamp is None

    def __str__(self) -> str:
        return f"NodeMaintenance {self.metadata.namespace}/{self.metadata.name}"


class Maintenances:
    """What grapnel has requested. ``acting`` is the API server for what changes something.

    ``is_asked``: the declaration wants it. What was requested before is withdrawn in any case.
    """

    def __init__(self, api: Api, acting: Api, *, is_asked: bool) -> None:
        self._api, self._acting, self.is_asked = api, acting, is_asked
        self._polled = Polled(self._list, api.clock, POLL_S)

    def found(self) -> Mapping[str, Maintenance]:
        """Return what has become of the requests, by the names of Nodes."""
        return self._polled.found() if self.is_asked else {}

    def request(self, node: Node) -> None:
        """Request the maintenance of a Node, unless that was done before. Raises ClusterError."""
        self._polled.forget_soon()
        request = Request(method="POST", path=OURS, body=_body(node))
        try:
            self._acting.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND))
        except StatusError as error:
            if error.code == NOT_FOUND:
                raise _is_missing(self._api) from error
            self._make_sure(node)

    def withdraw(self, node: Node) -> None:
        """Delete the request for a Node, where there is one of ours. Raises ClusterError."""
        self._polled.forget_soon()
        if (found := self.requested(node)) is not None:
            self._delete(found)

    def requested(self, node: Node) -> NodeMaintenance | None:
        """Return our NodeMaintenance of a Node, None if there is none to delete. Raises ClusterError."""
        found = self._get(node)
        is_theirs = found is None or not found.is_ours or found.metadata.deletion_timestamp is not None
        return None if is_theirs else found

    def sweep(self, read: Callable[[str], Node | None]) -> None:
        """Make sure of the API, and withdraw what was requested for Nodes whose records do not say so any more.

        The record may have been removed meanwhile. ``read`` returns a Node as it is now. Raises ClusterError.
        """
        if not self.is_asked:
            return
        try:
            self._api.call(Request(method="GET", path=OURS, query={"limit": 1}), msgspec.Raw, expected=(NOT_FOUND,))
        except StatusError:
            raise _is_missing(self._api) from None
        for each in self._ours():
            node = read(each.spec.node_name)
            if node is None or not _is_under_way(former_record(node)):
                self._delete(each)

    def _make_sure(self, node: Node) -> None:
        """Raise where the object of that name was made by others; one that is being deleted is waited for."""
        found = self._get(node)
        if found is not None and (not found.is_ours or found.spec.node_name != node.metadata.name):
            raise RefusedError(
                f"{found} of {self._api.name} is of requestor {found.spec.requestor_id}, for node "
                f"{found.spec.node_name}",
                hint="delete it, or have its requestor choose another name",
            )

    def _get(self, node: Node) -> NodeMaintenance | None:
        request = Request(method="GET", path=_path(name_of(node.metadata.name)))
        try:
            return self._acting.call(request, NodeMaintenance, expected=(NOT_FOUND,))
        except StatusError:
            return None

    def _delete(self, found: NodeMaintenance) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": found.metadata.uid}}
        request = Request(method="DELETE", path=_path(found.metadata.name), body=body)
        try:
            self._acting.call(request, msgspec.Raw, expected=(NOT_FOUND, CONFLICT))
        except StatusError:  # it is gone, or another one of that name is there by now
            return

    def _ours(self) -> list[NodeMaintenance]:
        return [each for each in self._api.list_all(OURS, NodeMaintenance) if each.is_ours]

    def _list(self) -> dict[str, Maintenance]:
        return {each.spec.node_name: maintenance_of(each) for each in self._ours()}


def needs_withdrawal(node: Node, record: Record | None) -> bool:
    """Tell whether ``record`` ends what was requested, as the Node's record has it that was last seen."""
    return not _is_under_way(record) and _is_under_way(former_record(node))


def maintenance_of(found: NodeMaintenance) -> Maintenance:
    """Return what an object of ours says."""
    if found.metadata.deletion_timestamp is not None:
        return Maintenance(words=f"waits for the former {found} to be gone", is_requested=True)
    state = found.state or "not seen by the operator yet"
    words = f"waits for the maintenance operator: {found} is {state}"
    return Maintenance(words=words, is_requested=True, is_granted=found.is_ready)


def name_of(node: str) -> str:
    """Return the name of the object for a Node."""
    name = f"grapnel-{node}"
    return name if len(name) <= _LONGEST_NAME else f"grapnel-{hashlib.sha256(node.encode()).hexdigest()}"


def _path(name: str) -> str:
    return f"{OURS}/{quote(name, safe='')}"


def _body(node: Node) -> dict[str, Any]:
    meta = node.metadata
    return {
        "apiVersion": "maintenance.nvidia.com/v1alpha1",
        "kind": "NodeMaintenance",
        "metadata": {
            "name": name_of(meta.name),
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "grapnel"},
            "annotations": {CORDONED_BEFORE: "true", NOT_COLLECTED: "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": meta.name, "uid": meta.uid}],
        },
        "spec": {"requestorID": REQUESTOR, "nodeName": meta.name, "cordon": False},
    }


def _is_under_way(record: Record | None) -> bool:
    return record is not None and record.is_requested and not record.phase.is_over


def _is_missing(api: Api) -> RefusedError:
    return RefusedError(
        f"{api.name} knows no NodeMaintenances (maintenance.nvidia.com/v1alpha1)",
        hint="install NVIDIA's maintenance operator, or leave rollout.maintenance.nodeMaintenances out",
    )
