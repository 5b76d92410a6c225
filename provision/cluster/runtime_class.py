"""Creates the RuntimeClass that pods name to get the engine's handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from provision.cluster.api import CONFLICT, NOT_FOUND
from provision.cluster.exchange import Request, StatusError
from provision.cluster.objects import RuntimeClass
from provision.rollout.errors import RuntimeClassError

if TYPE_CHECKING:
    from provision.cluster.api import Api

_FOLDER: Final = "/apis/node.k8s.io/v1/runtimeclasses"


def ensure_runtime_class(api: Api, name: str, handler: str) -> bool:
    """Create it where it is missing and return whether that was so; one that fits is left as it is, whoever made it.

    Raises RuntimeClassError when it has another handler, which Kubernetes does not let anybody change.
    """
    if has_runtime_class(api, name, handler):
        return False
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "grapnel"}},
        "handler": handler,
    }
    try:
        api.call(Request(method="POST", path=_FOLDER, body=body), RuntimeClass, expected=(CONFLICT,))
    except StatusError:  # somebody was quicker, or this is our own after an answer that was lost
        return not has_runtime_class(api, name, handler)
    return True


def has_runtime_class(api: Api, name: str, handler: str) -> bool:
    """Return whether there is one of that name. Raises RuntimeClassError when it has another handler."""
    request = Request(method="GET", path=f"{_FOLDER}/{quote(name, safe='')}")
    try:
        found = api.call(request, RuntimeClass, expected=(NOT_FOUND,))
    except StatusError:
        return False
    if found.handler != handler:
        raise RuntimeClassError(
            f"RuntimeClass {name} of {api.name} has handler {found.handler}, not {handler}",
            hint=f"a handler cannot be changed: declare `runtime.handler: {found.handler}`, or, when no pod uses it, "
            f"`kubectl delete runtimeclass {name}` and apply again",
        )
    return True
