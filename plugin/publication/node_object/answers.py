"""What the API's answers mean. Pure.

Whatever is not a success becomes a ClusterError that says what to do about it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.base.errors import ClusterError
from plugin.publication.node_object.conditions import OWN_KINDS
from plugin.publication.node_object.label_owners import owners_of
from plugin.publication.node_object.model import Condition
from plugin.publication.node_object.requests import NODE_FEATURES

if TYPE_CHECKING:
    from plugin.publication.node_object.api.messages import ApiResponse, Request

OK, REDIRECT, BAD_REQUEST = 200, 300, 400
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, TOO_LARGE, INVALID, TOO_MANY = 401, 403, 404, 409, 413, 422, 429
BROKEN = 500
_MAX_WORDS = 256
_MAX_RETRY_AFTER_S = 3600
_SECONDS = re.compile(r"[0-9]{1,6}")
_HINTS = {
    UNAUTHORIZED: "credentials are read again; is the certificate or token one of this cluster, and not expired?",
    TOO_MANY: "the API server asks for patience: it is asked again later",
}


class NodeState(NamedTuple):
    """What a Node says that matters here."""

    uid: str
    labels: dict[str, str]
    conditions: dict[str, Condition]
    annotations: dict[str, str]


def content_of(request: Request, answer: ApiResponse) -> dict[str, Any]:
    """Return the object of a success; raises ClusterError."""
    document = _parse(answer.body)
    if OK <= answer.status < REDIRECT:
        if document is None:
            raise ClusterError(f"the api server answers {request.verb} {request.resource} with no json object")
        return document
    raise _failure(request, answer, document or {})


def node_state(document: dict[str, Any]) -> NodeState:
    """Return the state that a Node, or its metadata alone, says; raises ClusterError."""
    metadata = document.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(uid, str) or not uid:
        raise ClusterError("the api server answers with a node that has no uid")
    status = document.get("status")
    rows = status.get("conditions") if isinstance(status, dict) else None
    found = [_condition(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    own = {condition.kind: condition for condition in found if condition.kind in OWN_KINDS}
    return NodeState(uid, _texts(metadata.get("labels")), own, _texts(metadata.get("annotations")))


def _texts(value: object) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {str(key): str(each) for key, each in pairs}


def _condition(row: dict[str, Any]) -> Condition:
    keys = ("type", "status", "reason", "message", "lastTransitionTime")
    return Condition(*(value if isinstance(value := row.get(key), str) else "" for key in keys))


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _failure(request: Request, answer: ApiResponse, document: dict[str, Any]) -> ClusterError:
    act = f"{request.verb} {request.resource}"
    words = " ".join(str(document.get("message", "")).split())[:_MAX_WORDS]
    told = f": {words}" if words else ""
    details = document.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    status = answer.status
    if budget := _budget_in(causes):  # with 429, and from Kubernetes 1.37 on with 403 as well: no rule is missing
        told = f"the api server refuses {act} ({status}): {budget}"
        return ClusterError(told, status=status, retry_after_s=_retry_after_s(answer.retry_after))
    if REDIRECT <= status < BAD_REQUEST:
        hint = "redirects are not followed: name the API server itself"
        return ClusterError(f"the api server redirects {act} ({status})", hint, status=status)
    if status == FORBIDDEN:
        rule = f'allow verb "{request.verb}" on "{request.resource}" (see deploy/rbac)'
        hint = f"{rule}; with a kubelet's credentials: is nodeName the name of its Node?"
        return ClusterError(f"the api server forbids {act}{told}", hint, status=status)
    if status == NOT_FOUND and request.resource == NODE_FEATURES:
        hint = "install Node Feature Discovery, or name its namespace by nodeFeatureNamespace"
        return ClusterError(f"there are no node features, or no such namespace{told}", hint, status=status)
    if status == CONFLICT and request.resource == NODE_FEATURES:
        hint = "stop the other one (GPU Feature Discovery?), then: kubectl delete nodefeature nvidia-features-for-NODE"
        return ClusterError(f"the node's features are somebody else's{told}", hint, status=status)
    if status == NOT_FOUND and request.resource.startswith("nodes"):
        hint = "it is asked again until the kubelet registers; is nodeName the name that kubectl get nodes shows?"
        return ClusterError(f"there is no such node{told}", hint, status=status)
    return ClusterError(
        f"the api server refuses {act} ({status}){told}",
        _HINTS.get(status, ""),
        status=status,
        retry_after_s=_retry_after_s(answer.retry_after),
        owners=owners_of(causes),
    )


def _budget_in(causes: object) -> str:
    """Return what the causes of a refusal say of a disruption budget, by its name; nothing where none refuses."""
    rows = causes if isinstance(causes, list) else []
    found = (row.get("message") for row in rows if isinstance(row, dict) and row.get("reason") == "DisruptionBudget")
    return " ".join(" ".join(map(str, filter(None, found))).split())[:_MAX_WORDS]


def _retry_after_s(header: str) -> float:
    """Return the seconds that the API asks for; a date, which it does not send, counts as nothing."""
    return float(min(int(header), _MAX_RETRY_AFTER_S)) if _SECONDS.fullmatch(header.strip()) else 0.0
