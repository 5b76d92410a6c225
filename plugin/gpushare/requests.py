"""The form in which the extender asks the API. Pure.

A pod is bound and annotated by one request: the API server takes the annotations of a Binding over to the pod in the
same write (`setPodNodeAndMetadata` of `pkg/registry/core/pod/storage`), so that no pod ever has only one of the two.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode

from plugin.publication.node_object.api.messages import JSON, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.gpushare.books.model import Pod

_MERGE = "application/merge-patch+json"
_METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
_PAGE = 500  # objects of an answer, some 15 MiB for Nodes with many images
WATCH_S = 300


class Collection(NamedTuple):
    """Objects that are listed and watched. `selector` is a field selector."""

    kind: str
    selector: str = ""


NODES = Collection("nodes")
PODS = Collection("pods", "status.phase!=Succeeded,status.phase!=Failed")


def pods_of(node: str) -> Collection:
    """Return the pods of one node that have not ended."""
    return Collection("pods", f"{PODS.selector},spec.nodeName={node}")


def list_page(collection: Collection, token: str = "") -> Request:
    """Ask for one page; `token` is where the one before it ended."""
    query = {"limit": str(_PAGE), "fieldSelector": collection.selector, "continue": token}
    return Request("GET", _path(collection, query), "list", collection.kind)


def watch(collection: Collection, version: str) -> Request:
    """Ask for what changes from a version on."""
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(WATCH_S),
        "fieldSelector": collection.selector,
    }
    return Request("GET", _path(collection, query), "watch", collection.kind)


def read_node(name: str) -> Request:
    """Ask for a Node."""
    return Request("GET", f"/api/v1/nodes/{quote(name, safe='')}", "get", "nodes")


def read_pod(namespace: str, name: str) -> Request:
    """Ask for a pod."""
    return Request("GET", _pod(namespace, name), "get", "pods")


def bind(pod: Pod, node: str, annotations: Mapping[str, str]) -> Request:
    """Bind and annotate a pod, if it is still this one and on no node."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": dict(annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"{_pod(pod.namespace, pod.name)}/binding"
    return Request("POST", path, "create", "pods/binding", JSON, json.dumps(body).encode())


def annotate(pod: Pod, changes: Mapping[str, str | None]) -> Request:
    """Change annotations of a pod, if it is still this one."""
    body = {"metadata": {"uid": pod.uid, "annotations": dict(changes)}}
    return Request(
        "PATCH", _pod(pod.namespace, pod.name), "patch", "pods", _MERGE, json.dumps(body).encode(), _METADATA
    )


def _path(collection: Collection, query: Mapping[str, str]) -> str:
    return f"/api/v1/{collection.kind}?{urlencode({key: value for key, value in query.items() if value})}"


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
