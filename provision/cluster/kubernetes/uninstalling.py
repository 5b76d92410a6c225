"""Asks the controller of a cluster to begin nothing further, since it is about to be uninstalled.

The request is a time on the controller's lease until which it holds, and is renewed by whoever waits for the
controller: one that is killed leaves nothing behind that would keep the controller from going on for long.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.lease import LEASES, UNINSTALLING
from provision.cluster.kubernetes.objects.core import Lease
from provision.cluster.kubernetes.permissions import LEADER_NAME, LEASE_NAMESPACE
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api

LASTS_S: Final = 60.0  # three renewals of the lease, by which the controller hears of it
_ATTEMPTS: Final = 5


def ask(api: Api) -> None:
    """Have the request hold for `LASTS_S` from now; the lease is made where there is none. Raises ClusterError."""
    until = api.now() + timedelta(seconds=LASTS_S)
    text = until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for _attempt in range(_ATTEMPTS):
        if _patch(api, text) or _make(api, text):
            return
    raise ClusterError(f"{api.name}: the lease {LEADER_NAME} does not come to rest", hint="try again")


def withdraw(api: Api) -> None:
    """Take the request back. Raises ClusterError."""
    _patch(api, None)


def _patch(api: Api, text: str | None) -> bool:
    """Write or remove the annotation alone, whatever else is on the lease; return False where there is no lease."""
    body = {"metadata": {"annotations": {UNINSTALLING: text}}}
    return _send(api, Request(method="PATCH", path=f"{LEASES}/{LEADER_NAME}", body=body, content_type=MERGE_PATCH))


def _make(api: Api, text: str) -> bool:
    metadata: dict[str, Any] = {
        "name": LEADER_NAME,
        "namespace": LEASE_NAMESPACE,
        "labels": {"app.kubernetes.io/managed-by": "grapnel"},
        "annotations": {UNINSTALLING: text},
    }
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
    return _send(api, Request(method="POST", path=LEASES, body=body))


def _send(api: Api, request: Request) -> bool:
    try:
        api.call(request, Lease, expected=(NOT_FOUND, CONFLICT))
    except StatusError:
        return False
    return True
