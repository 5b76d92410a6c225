"""Who has which units, as users of gpushare see it: the extender's JSON, and what `kubectl inspect gpushare` prints.

Pure. Sources: `pkg/scheduler/gpushare-inspect.go` of the extender; `cmd/inspect/display.go` of the device plugin.
Unlike there, each card has its own size, and units that are not placed yet are a column of their own in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugin.gpushare.books.model import UNKNOWN_CARD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.gpushare.books.book import Books, Share
    from plugin.gpushare.books.model import Node

_MIB, _GIB = 1 << 20, 1 << 30
_GAP = "  "


def nodes_to_json(books: Books, name: str = "") -> dict[str, Any]:
    """Return what `inspect` of the extender answers, of one node or of all."""
    node = books.node(name)
    if name and node is None:
        return {"nodes": [], "error": f"the node {name[:253]} is not known"}
    return {"nodes": [_node_to_json(each, books.shares(each.name)) for each in ((node,) if node else books.nodes())]}


def _node_to_json(node: Node, shares: Sequence[Share]) -> dict[str, Any]:
    cards = node.report.cards if node.report is not None else ()
    devices = [_device(card.number, card.units, [each for each in shares if each.card == card]) for card in cards]
    unplaced = [each for each in shares if each.card is None]
    if unplaced:
        devices.append(_device(UNKNOWN_CARD, 0, unplaced))
    total, used = sum(each["totalGPU"] for each in devices), sum(each["usedGPU"] for each in devices)
    return {"name": node.name, "totalGPU": total, "usedGPU": used, "devs": devices}


def _device(number: int, units: int, shares: Sequence[Share]) -> dict[str, Any]:
    used: dict[tuple[str, str], int] = {}
    for each in shares:
        key = each.pod.name, each.pod.namespace
        used[key] = used.get(key, 0) + each.units
    pods = [{"name": name, "namespace": namespace, "usedGPU": taken} for (name, namespace), taken in used.items()]
    return {"id": number, "totalGPU": units, "usedGPU": sum(used.values()), "pods": pods}


def render_summary(books: Books, name: str = "") -> str:
    """Return the table of nodes; raises KeyError for a node that is not known."""
    nodes = _chosen(books, name)
    shown = {node.name: _node_to_json(node, books.shares(node.name)) for node in nodes}
    numbers = _numbers(shown.values())
    is_pending = any(_used(each, UNKNOWN_CARD) for each in shown.values())
    head = ["NAME", "IPADDRESS", *(f"GPU{number}(Allocated/Total)" for number in numbers)]
    rows = [[*head, *(["PENDING(Allocated)"] if is_pending else []), f"GPU Memory({unit_words(nodes)})"]]
    for node in nodes:
        each = shown[node.name]
        cells = [f"{_used(each, number)}/{_total(each, number)}" for number in numbers]
        pending = [str(_used(each, UNKNOWN_CARD))] if is_pending else []
        rows.append([node.name, node.address or "unknown", *cells, *pending, f"{each['usedGPU']}/{each['totalGPU']}"])
    lines = _table(rows)
    return "\n".join([*lines, "-" * max(map(len, lines)), *_sum(shown.values()), ""])


def render_details(books: Books, name: str = "") -> str:
    """Return a table of pods for each node; raises KeyError for a node that is not known."""
    nodes = _chosen(books, name)
    shown = {node.name: _node_to_json(node, books.shares(node.name)) for node in nodes}
    lines = []
    for node in nodes:
        lines += ["", *_details(node, shown[node.name])]
    return "\n".join([*lines, "", *_sum(shown.values()), ""])


def _details(node: Node, shown: dict[str, Any]) -> list[str]:
    numbers = [device["id"] for device in shown["devs"]]
    titles = ["Pending(Allocated)" if each == UNKNOWN_CARD else f"GPU{each}(Allocated)" for each in numbers]
    pods: dict[tuple[str, str], dict[int, int]] = {}
    for device in shown["devs"]:
        for pod in device["pods"]:
            pods.setdefault((pod["name"], pod["namespace"]), {})[device["id"]] = pod["usedGPU"]
    rows = [["NAME", "NAMESPACE", *titles]]
    rows += [[*who, *(str(taken.get(number, 0)) for number in numbers)] for who, taken in pods.items()]
    table = _table(rows)
    used, total = shown["usedGPU"], shown["totalGPU"]
    problem = [f"note: {node.problem}"] if node.problem else []
    return [
        *_table([["NAME:", node.name], ["IPADDRESS:", node.address or "unknown"]]),
        "",
        *table,
        f"Allocated :{_GAP}{used} ({_percent(used, total)}%)",
        f"Total :{_GAP}{total}",
        *problem,
        "-" * max(map(len, table)),
    ]


def unit_words(nodes: Sequence[Node]) -> str:
    """Return what a unit is called, of all nodes alike; otherwise that it is only a unit."""
    sizes = {node.report.unit_bytes for node in nodes if node.report is not None}
    if sizes == {_GIB}:
        return "GiB"
    if sizes == {_MIB}:
        return "MiB"
    size = next(iter(sizes)) if len(sizes) == 1 else 0
    return f"{size // _MIB} MiB each" if size and not size % _MIB else "units"


def _chosen(books: Books, name: str) -> tuple[Node, ...]:
    if not name:
        return books.nodes()
    node = books.node(name)
    if node is None:
        raise KeyError(name)
    return (node,)


def _numbers(shown: Any) -> list[int]:
    found = {device["id"] for each in shown for device in each["devs"]}
    return sorted(found - {UNKNOWN_CARD})


def _used(shown: dict[str, Any], number: int) -> int:
    return sum(device["usedGPU"] for device in shown["devs"] if device["id"] == number)


def _total(shown: dict[str, Any], number: int) -> int:
    return sum(device["totalGPU"] for device in shown["devs"] if device["id"] == number)


def _sum(shown: Any) -> list[str]:
    used, total = sum(each["usedGPU"] for each in shown), sum(each["totalGPU"] for each in shown)
    return ["Allocated/Total GPU Memory In Cluster:", f"{used}/{total} ({_percent(used, total)}%)"]


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=False)] for row in rows]
    return [_GAP.join(row).rstrip() for row in padded]
