"""Creates the RuntimeClass that pods name to get the engine's handler, and takes back one that it has created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.objects.core import RuntimeClass
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.watch.informer import ALIVE, PODS
from provision.rollout.errors import RuntimeClassError

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api

_FOLDER: Final = "/apis/node.k8s.io/v1/runtimeclasses"
_MANAGED_BY, _OURS = "app.kubernetes.io/managed-by", "grapnel"
_SHOWN: Final = 3


def ensure_runtime_class(api: Api, name: str, handler: str) -> bool:
    """Create it where it is missing and return whether that was so; one that fits is left as it is, whoever made it.

    Raises RuntimeClassError when it has another handler, which Kubernetes does not let anybody change.
    """
    if has_runtime_class(api, name, handler):
        return False
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": {_MANAGED_BY: _OURS}},
        "handler": handler,
    }
    try:
        api.call(Request(method="POST", path=_FOLDER, body=body), RuntimeClass, expected=(CONFLICT,))
    except StatusError:  # another process was quicker, or this is our own after an answer that was lost
        return not has_runtime_class(api, name, handler)
    return True


def has_runtime_class(api: Api, name: str, handler: str) -> bool:
    """Return whether there is one of that name. Raises RuntimeClassError when it has another handler."""
    found = read_runtime_class(api, name)
    if found is None:
        return False
    if found.handler != handler:
        raise RuntimeClassError(
            f"RuntimeClass {name} of {api.name} has handler {found.handler}, not {handler}",
            hint=f"a handler cannot be changed: declare `runtime.handler: {found.handler}`, or, when no pod uses it, "
            f"`kubectl delete runtimeclass {name}` and apply again",
        )
    return True


def why_it_stays(api: Api, name: str) -> str | None:
    """Return why the RuntimeClass has to stay, empty where it may go, and None where there is none."""
    found = read_runtime_class(api, name)
    return None if found is None else _why(api, found)


def remove_runtime_class(api: Api, acting: Api, name: str) -> str:
    """Delete the RuntimeClass unless a pod needs it; return why it stays, empty where it is gone.

    A pod that is made at this moment and names it is refused by Kubernetes, as every later one.
    """
    found = read_runtime_class(api, name)
    if found is None:
        return ""
    if reason := _why(api, found):
        return reason
    metadata = found.metadata
    exactly = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": exactly}
    try:
        acting.call(Request(method="DELETE", path=_path(name), body=body), msgspec.Raw, expected=(NOT_FOUND, CONFLICT))
    except StatusError as error:
        if error.code == CONFLICT:
            return "somebody changed it at this moment"
    return ""


def _why(api: Api, found: RuntimeClass) -> str:
    if found.metadata.labels.get(_MANAGED_BY) != _OURS:
        return f"grapnel did not make it (it has no label {_MANAGED_BY}={_OURS})"
    pods = [
        pod for pod in api.list_all(PODS, Pod, selector=ALIVE) if pod.spec.runtime_class_name == found.metadata.name
    ]
    if not pods:
        return ""
    named = ", ".join(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods[:_SHOWN])
    more = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
    return f"pods name it: {named}{more}"


def read_runtime_class(api: Api, name: str) -> RuntimeClass | None:
    """Return a RuntimeClass, or None. Raises ClusterError."""
    try:
        return api.call(Request(method="GET", path=_path(name)), RuntimeClass, expected=(NOT_FOUND,))
    except StatusError:
        return None


def _path(name: str) -> str:
    return f"{_FOLDER}/{quote(name, safe='')}"
