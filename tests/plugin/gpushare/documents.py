"""Nodes and pods as the API server sends them, with memory units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugin.gpushare.books.model import RESOURCE, Card, Report
from plugin.gpushare.books.objects import parse_node, parse_pod
from plugin.gpushare.books.report import ANNOTATION, render_report

if TYPE_CHECKING:
    from plugin.gpushare.books.model import Holding, Node, Pod

GIB = 1 << 30
CREATED, CREATED_NS = "2026-05-04T12:00:00Z", 1_777_896_000_000_000_000
LATER_NS = CREATED_NS + 5_000_000_000


def cards(*units: int) -> tuple[Card, ...]:
    """Cards of so many units."""
    return tuple(Card(f"GPU-{number}", number, each) for number, each in enumerate(units))


def report(*units: int, holdings: tuple[Holding, ...] = (), at_ns: int = LATER_NS) -> Report:
    return Report(RESOURCE, GIB, cards(*units), at_ns, holdings)


def node_document(name: str, said: Report | None, allocatable: int | None = None) -> dict[str, Any]:
    units = allocatable if allocatable is not None else said.units if said else 0
    return {
        "metadata": {"name": name, "annotations": {ANNOTATION: render_report(said)} if said else {}},
        "spec": {},
        "status": {
            "allocatable": {RESOURCE: str(units)},
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "192.168.0.71"}],
        },
    }


def pod_document(name: str, *units: int, node: str = "", initial: int = 0, namespace: str = "jobs") -> dict[str, Any]:
    """Return a pod whose containers `c0`, `c1`, … ask for so many units each."""
    spec: dict[str, Any] = {"containers": [container(f"c{index}", each) for index, each in enumerate(units)]}
    if initial:
        spec["initContainers"] = [container("i0", initial)]
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": CREATED}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def container(name: str, units: int) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {RESOURCE: str(units)}, "requests": {RESOURCE: str(units)}}}


def make_node(name: str, said: Report | None, allocatable: int | None = None) -> Node:
    return parse_node(node_document(name, said, allocatable), RESOURCE)


def make_pod(name: str, *units: int, node: str = "", initial: int = 0) -> Pod:
    found = parse_pod(pod_document(name, *units, node=node, initial=initial), RESOURCE)
    assert found is not None
    return found
