"""The form in which the API is asked. Pure.

Conditions: a strategic merge patch of `nodes/status`, which replaces conditions of the same type and keeps all others.
Annotations: a JSON merge patch of single ones, with the uid.
Labels: server-side apply, never forced, with the uid, so that it can neither make a Node nor take over another one.
Features: server-side apply of a NodeFeature object, never forced, under the name of NVIDIA's feature discovery (its
internal/lm/output.go, 0.19), owned by the Node: it goes with it.
Evictions: policy/v1, of the pod with this uid alone; budgets are the API server's to respect.
Events: v1, in namespace `default`, like the kubelet's own of its node.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from plugin.publication.node_object.api.messages import JSON, Request
from plugin.publication.node_object.conditions import transition_time
from plugin.publication.node_object.label_owners import FIELD_MANAGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.publication.node_object.model import Condition, Eviction
    from plugin.publication.node_object.plan import ApplyFeature, ApplyLabels, PatchAnnotations, SendEvent

_EVENTS = "/api/v1/namespaces/default/events"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
# Enough of the answer to a patch: not the whole Node, with its images.
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
NODE_FEATURES, EVICTIONS = "nodefeatures", "pods/eviction"
_FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces"
_MAX_NAME = 253
_SUFFIX = 17


def read_node(node: str) -> Request:
    """Ask for the Node."""
    return Request("GET", _node(node), "get", "nodes")


def patch_conditions(node: str, conditions: tuple[Condition, ...], utc: str) -> Request:
    """Send conditions whose `since` is their transition's time."""
    rows = [
        {
            "type": condition.kind,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": utc,
            "lastTransitionTime": condition.since,
        }
        for condition in conditions
    ]
    body = {"status": {"conditions": rows}}
    return _patch(f"{_node(node)}/status", "nodes/status", STRATEGIC, body)


def with_transition_times(
    conditions: tuple[Condition, ...], there: Mapping[str, Condition], utc: str
) -> tuple[Condition, ...]:
    """Return the conditions as they are to be sent."""
    return tuple(each._replace(since=transition_time(each, there.get(each.kind), utc)) for each in conditions)


def apply_labels(node: str, step: ApplyLabels) -> Request:
    """Apply the labels; one of another owner with another value makes it fail as a whole."""
    metadata = {"name": node, "uid": step.uid, "labels": dict(step.labels)}
    path = f"{_node(node)}?fieldManager={FIELD_MANAGER}&force=false"
    return _patch(path, "nodes", APPLY, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def feature_name(node: str) -> str:
    """Return the name of a node's object."""
    return f"nvidia-features-for-{node}"


def apply_feature(node: str, step: ApplyFeature) -> Request:
    """Make the node's NodeFeature object say this, and nothing else of ours.

    A map that loses its last key by an apply becomes null, and null is refused: what is empty is left out. `flags` are
    always empty, and stay, so that what is around them is never null.
    """
    feature, name = step.feature, feature_name(node)
    attributes = {key: {"elements": dict(each)} for key, each in feature.attributes.items() if each}
    instances = {
        key: {"elements": [{"attributes": dict(one)} for one in each]}
        for key, each in feature.instances.items()
        if each
    }
    sets = {"flags": {}, **_unless_empty(attributes=attributes, instances=instances)}
    body = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": name,
            "namespace": feature.namespace,
            "labels": {"nfd.node.kubernetes.io/node-name": node},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": step.uid}],
        },
        "spec": {"features": sets, **_unless_empty(labels=dict(feature.labels))},
    }
    place = f"{_FEATURES}/{quote(feature.namespace, safe='')}/{NODE_FEATURES}/{quote(name, safe='')}"
    return _patch(f"{place}?fieldManager={FIELD_MANAGER}&force=false", NODE_FEATURES, APPLY, body)


def _unless_empty(**maps: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in maps.items() if each}


def patch_annotations(node: str, step: PatchAnnotations) -> Request:
    """Set annotations, and remove those that are None, if this is still the Node."""
    body = {"metadata": {"uid": step.uid, "annotations": dict(step.annotations)}}
    return _patch(_node(node), "nodes", MERGE, body)


def evict_pod(pod: Eviction) -> Request:
    """Have a pod evicted, unless another one has its name by now."""
    place = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return Request("POST", place, "create", EVICTIONS, JSON, json.dumps(body).encode())


def send_event(node: str, step: SendEvent, name: str) -> Request:
    """Make the event called `name`, or count it up where it is there already."""
    series = step.series
    if series.name:
        body: dict[str, Any] = {"count": series.count, "lastTimestamp": series.last, "message": series.note.message}
        return _patch(f"{_EVENTS}/{quote(series.name, safe='')}", "events", STRATEGIC, body)
    note = series.note
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": step.uid},
        "reason": note.reason,
        "message": note.message,
        "type": "Warning" if note.is_warning else "Normal",
        "source": {"component": FIELD_MANAGER, "host": node},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": node,
        "firstTimestamp": series.first,
        "lastTimestamp": series.last,
        "count": series.count,
    }
    return Request("POST", _EVENTS, "create", "events", JSON, json.dumps(body).encode(), METADATA)


def event_name(node: str, number: int) -> str:
    """Return a name that no other event has: the node's and 64 bits, in the form of client-go's."""
    return f"{node[: _MAX_NAME - _SUFFIX].rstrip('-.')}.{number & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def _node(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"


def _patch(path: str, resource: str, content_type: str, body: object) -> Request:
    return Request("PATCH", path, "patch", resource, content_type, json.dumps(body).encode(), METADATA)
