"""What Nodes and pods of the Kubernetes API say of memory units. Pure: documents in, values out.

A document that is not what the API sends is read as far as it goes: one odd object must not stop the others.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from plugin.gpushare.books.model import Demand, Node, Pod
from plugin.gpushare.books.pod_annotations import OURS
from plugin.gpushare.books.report import ANNOTATION, parse_report

_QUANTITY = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,9})?)(?P<suffix>[kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?")
_POWERS = {letter: power for power, letter in enumerate("kMGTPE", 1)}
_ENDED = ("Succeeded", "Failed")
_GIGA = 1_000_000_000


def parse_quantity(value: object) -> int:
    """Return a whole quantity as Kubernetes writes it (`3`, `2k`, `1Ki`); 0 for anything else."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return 0
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    if suffix[:1] in {"e", "E"} and len(suffix) > 1 and suffix != "Ei":
        number *= Decimal(10) ** int(suffix[1:])
    elif suffix.endswith("i"):
        number *= 1024 ** _POWERS[suffix[0].replace("K", "k")]
    elif suffix:
        number *= 1000 ** _POWERS[suffix]
    return int(number) if number == int(number) else 0


def parse_pod(document: object, resource: str) -> Pod | None:
    """Return a pod that wants units and has not ended, None for every other one."""
    metadata, spec = _section(document, "metadata"), _section(document, "spec")
    if _section(document, "status").get("phase") in _ENDED:
        return None
    running, initial = _containers(spec, resource)
    demand = Demand(tuple(units for _, units in running), initial)
    if not demand.units:
        return None
    found = _section(metadata, "annotations")
    return Pod(
        _text(metadata, "namespace"),
        _text(metadata, "name"),
        _text(metadata, "uid"),
        demand,
        tuple(name for name, _ in running),
        _text(spec, "nodeName"),
        _nanoseconds(_text(metadata, "creationTimestamp")),
        {key: str(found[key]) for key in OURS if key in found},
    )


def parse_node(document: object, resource: str) -> Node:
    """Return a Node."""
    metadata, status = _section(document, "metadata"), _section(document, "status")
    node = Node(
        _text(metadata, "name"), _address(status), parse_quantity(_section(status, "allocatable").get(resource))
    )
    written = _text(_section(metadata, "annotations"), ANNOTATION)
    if not written:
        return node._replace(problem=f"the node does not say which cards it offers as {resource}")
    try:
        report = parse_report(written)
    except ValueError as error:
        return node._replace(problem=f"annotation {ANNOTATION} of the node cannot be read: {error}")
    if report.resource != resource:
        return node._replace(problem=f"the node offers {report.resource[:63]}, not {resource}")
    return node._replace(report=report)


def priority_of(document: object) -> int:
    """Return the priority of a pod; 0 where it has none."""
    found = _section(document, "spec").get("priority")
    return found if isinstance(found, int) else 0


def uid_of(document: object) -> str:
    """Return the uid of an object."""
    return _text(_section(document, "metadata"), "uid")


def name_of(document: object) -> str:
    """Return the name of an object."""
    return _text(_section(document, "metadata"), "name")


def _containers(spec: dict[str, Any], resource: str) -> tuple[list[tuple[str, int]], int]:
    """Return the containers that run together with their units, and the largest number of an init container."""
    running, initial = [], 0
    for container in _rows(spec, "initContainers"):
        if container.get("restartPolicy") == "Always":  # a sidecar, which runs on
            running.append((_text(container, "name"), _units(container, resource)))
        else:
            initial = max(initial, _units(container, resource))
    own = [(_text(container, "name"), _units(container, resource)) for container in _rows(spec, "containers")]
    return [*own, *running], initial


def _units(container: dict[str, Any], resource: str) -> int:
    resources = _section(container, "resources")
    requests, limits = _section(resources, "requests"), _section(resources, "limits")
    return parse_quantity(requests.get(resource, limits.get(resource, 0)))


def _address(status: dict[str, Any]) -> str:
    rows = _rows(status, "addresses")
    return next((_text(row, "address") for row in rows if row.get("type") == "InternalIP"), "")


def _nanoseconds(timestamp: str) -> int:
    try:
        moment = datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return 0
    return int(moment.timestamp()) * _GIGA


def _section(document: object, key: str) -> dict[str, Any]:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def _rows(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = document.get(key)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""
