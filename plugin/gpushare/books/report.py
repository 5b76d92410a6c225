"""The annotation by which a node's daemon says which cards it offers in units, and which pod holds how many.

Pure. The format is the contract `docs/contracts/memory-units`: written by the daemon, read by extenders and `inspect`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from plugin.base.documents import list_of, member, members, read_versioned, text, truth, whole
from plugin.gpushare.books.model import Card, Holding, Report

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.kubelet.pod_resources.attribution import DeviceAssignment

ANNOTATION = "grapnel.dev/memory-units"
SCHEMA = "grapnel.dev/memory-units/v1alpha1"
MAX_BYTES = 192 * 1024  # all annotations of an object together may have 256 KiB
_UNIT = re.compile(r"(?P<uuid>[^/]+)/[0-9]+")
_MAX_CARDS = 256
_MAX_NAME = 253
_MAX_UNITS = 2**31


def holdings_of(assignments: Iterable[DeviceAssignment], resource: str) -> tuple[Holding, ...]:
    """Return which container holds how many units of which card, out of the ids `UUID/j` that the kubelet lists."""
    found: dict[tuple[str, str, str, str], int] = {}
    for each in assignments:
        if each.resource != resource:
            continue
        holder = each.holder
        for device_id in each.device_ids:
            unit = _UNIT.fullmatch(device_id)
            if unit is not None:
                key = (holder.namespace, holder.pod, holder.container, unit["uuid"])
                found[key] = found.get(key, 0) + 1
    return tuple(Holding(*key, units) for key, units in sorted(found.items()))


def render_report(report: Report) -> str:
    """Return the annotation: JSON on one line. Pods are left off where the kubelet was not asked."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "resource": report.resource,
        "unitBytes": report.unit_bytes,
        "cards": [
            {"uuid": card.uuid, "index": card.number, "units": card.units, "healthy": card.is_healthy}
            for card in report.cards
        ],
    }
    if report.at_ns:
        document |= {"askedAt": report.at_ns, "pods": _pods(report.holdings)}
    return json.dumps(document, separators=(",", ":"))


def _pods(holdings: tuple[Holding, ...]) -> list[dict[str, Any]]:
    pods: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    for each in holdings:
        containers = pods.setdefault((each.namespace, each.pod), {})
        containers.setdefault(each.container, {})[each.uuid] = each.units
    return [
        {"namespace": namespace, "name": name, "containers": containers}
        for (namespace, name), containers in pods.items()
    ]


def parse_report(content: str) -> Report:
    """Return what an annotation says; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    cards = member(document, "cards", list_of(_card, _MAX_CARDS))
    if len({card.uuid for card in cards}) < len(cards) or len({card.number for card in cards}) < len(cards):
        raise ValueError("cards: a card is named twice")
    holdings = tuple(each for pod in member(document, "pods", list_of(_pod), ()) for each in pod)
    known = {card.uuid for card in cards}
    return Report(
        member(document, "resource", text(_MAX_NAME)),
        member(document, "unitBytes", whole(1)),
        cards,
        member(document, "askedAt", whole(), 0),
        tuple(each for each in holdings if each.uuid in known),
    )


def _card(value: object) -> Card:
    return Card(
        member(value, "uuid", text(_MAX_NAME)),
        member(value, "index", whole(0, 10_000)),
        member(value, "units", whole(0, _MAX_UNITS)),
        member(value, "healthy", truth, default=True),
    )


def _pod(value: object) -> tuple[Holding, ...]:
    namespace, name = member(value, "namespace", text(_MAX_NAME)), member(value, "name", text(_MAX_NAME))
    containers = member(value, "containers", members)
    return tuple(
        Holding(namespace, name, container, uuid, whole(1, _MAX_UNITS)(units))
        for container, held in containers.items()
        for uuid, units in members(held).items()
    )
