"""What kube-scheduler and an extender say to each other: k8s.io/kube-scheduler/extender/v1. Pure.

Its types have no names of their own for JSON, so members are called as in Go (`NodeNames`); old schedulers wrote
them small. Go reads either, and so does this.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class FilterQuestion(NamedTuple):
    """Say which of these nodes could have the pod. `items`: the nodes as they were sent, where they were sent whole."""

    pod: dict[str, Any]
    names: tuple[str, ...]
    items: tuple[dict[str, Any], ...] | None = None


class Victims(NamedTuple):
    """The pods that would have to leave a node, by uid. `violations`: of their budgets, as the scheduler counts."""

    uids: tuple[str, ...]
    violations: int = 0


class PreemptQuestion(NamedTuple):
    """Say on which of these nodes a pod would fit, once these pods have left."""

    pod: dict[str, Any]
    victims: dict[str, Victims]


class BindQuestion(NamedTuple):
    """Bind this pod to this node."""

    name: str
    namespace: str
    uid: str
    node: str


def parse_filter(body: bytes) -> FilterQuestion:
    """Return the question; raises ValueError."""
    document = _document(body)
    pod = _pick(document, "Pod")
    if not isinstance(pod, dict):
        raise ValueError("Pod is missing")
    names, nodes = _pick(document, "NodeNames"), _pick(document, "Nodes")
    if isinstance(names, list):
        if not all(isinstance(name, str) for name in names):
            raise ValueError("NodeNames must be texts")
        return FilterQuestion(pod, tuple(names))
    items = _pick(nodes, "Items") if isinstance(nodes, dict) else None
    if not isinstance(items, list):
        raise ValueError("there are neither NodeNames nor Nodes")
    found = tuple(item for item in items if isinstance(item, dict))
    return FilterQuestion(pod, tuple(_name(item) for item in found), found)


def render_filter(question: FilterQuestion, failed: Mapping[str, str], hopeless: Mapping[str, str]) -> bytes:
    """Return the answer: every node that is in neither mapping could have the pod. `hopeless`: nor by preemption."""
    bad = failed.keys() | hopeless.keys()
    good = [name for name in question.names if name not in bad]
    items = None if question.items is None else {"items": [item for item in question.items if _name(item) not in bad]}
    return _render(
        Nodes=items, NodeNames=good, FailedNodes=dict(failed), FailedAndUnresolvableNodes=dict(hopeless), Error=""
    )


def filter_error(reason: str) -> bytes:
    """Return an answer that no node can be judged."""
    return _render(Nodes=None, NodeNames=None, FailedNodes=None, FailedAndUnresolvableNodes=None, Error=reason)


def parse_preempt(body: bytes) -> PreemptQuestion:
    """Return the question; raises ValueError."""
    document = _document(body)
    pod = _pick(document, "Pod")
    named = _pick(document, "NodeNameToMetaVictims") or _pick(document, "NodeNameToVictims") or {}
    if not isinstance(pod, dict) or not isinstance(named, dict):
        raise ValueError("Pod is missing, or the victims are no object")
    return PreemptQuestion(pod, {name: _victims(each) for name, each in named.items() if isinstance(each, dict)})


def render_preempt(victims: Mapping[str, Victims]) -> bytes:
    """Return the answer: the nodes on which the pod would fit."""
    return _render(
        NodeNameToMetaVictims={
            name: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.violations}
            for name, each in victims.items()
        }
    )


def _victims(document: dict[str, Any]) -> Victims:
    pods, violations = _pick(document, "Pods"), _pick(document, "NumPDBViolations")
    rows = [row for row in pods if isinstance(row, dict)] if isinstance(pods, list) else []
    # Pods are sent by uid alone, or whole.
    found = (_pick(row, "UID") or _uid(row) for row in rows)
    return Victims(tuple(str(uid) for uid in found), violations if isinstance(violations, int) else 0)


def _uid(pod: dict[str, Any]) -> object:
    metadata = pod.get("metadata")
    return metadata.get("uid") if isinstance(metadata, dict) else None


def parse_bind(body: bytes) -> BindQuestion:
    """Return what is to be bound; raises ValueError."""
    document = _document(body)
    found = [_pick(document, key) for key in ("PodName", "PodNamespace", "PodUID", "Node")]
    if not all(isinstance(value, str) and value for value in found):
        raise ValueError("PodName, PodNamespace, PodUID and Node must be there")
    return BindQuestion(*found)


def bind_answer(reason: str = "") -> bytes:
    """Return the answer: bound, or why not."""
    return _render(Error=reason)


def _render(**members: object) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except RecursionError as error:
        raise ValueError("the request is nested without end") from error
    except ValueError as error:
        raise ValueError(f"the request is not json: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("the request is not a json object")
    return document


def _pick(document: dict[str, Any], key: str) -> Any:
    """Return a member, written as in Go or in any other case."""
    if key in document:
        return document[key]
    small = key.lower()
    return next((value for name, value in document.items() if name.lower() == small), None)


def _name(item: dict[str, Any]) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
