"""Renders `grapnel check --explain NODE`: every value of a node, who set it, and what that overrode."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from provision.cli.terminal import paint
from provision.errors import UsageError
from provision.fleet.model import Level
from provision.printable import printable
from provision.spec.validate import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provision.fleet.model import Fleet, FleetNode, Origin

SCHEMA: Final = "grapnel.dev/explain/v1alpha1"
_HEAD: Final = ("KEY", "VALUE", "SET BY", "INSTEAD OF")
_PLAIN: Final = re.compile(r"[A-Za-z/][^\s:#,\[\]{}]*\Z")


def find_node(fleet: Fleet, name: str) -> FleetNode:
    """Return a node by its name; raises UsageError with the nearest one."""
    names = [node.name for node in fleet.nodes]
    for node in fleet.nodes:
        if node.name == name:
            return node
    near = nearest(name, names)
    hint = f"did you mean {near}?" if near else "`ansible-inventory --graph` shows the names"
    raise UsageError(f"no host of the inventory is named '{name}'", hint=hint)


def render_node(node: FleetNode, *, colour: bool = False) -> str:
    """Return the table, in the order of the model; values of the defaults are dim."""
    rows = [
        tuple(map(printable, (key, _show(origin.value), _who(origin), _overridden(origin))))
        for key, origin in node.origins.items()
    ]
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    lines = [
        printable(f"{node.name}, weakest group first: {', '.join(node.groups)}"),
        "",
        paint(_line(_HEAD, widths), "1", colour=colour),
    ]
    for row, origin in zip(rows, node.origins.values(), strict=True):
        dim = colour and origin.level is Level.DEFAULT
        lines.append(paint(_line(row, widths), "2", colour=dim))
    return "\n".join(lines)


def describe_node(node: FleetNode) -> dict[str, object]:
    """Return the same as JSON."""
    keys = [
        {"key": key, **_entry(origin), "overrode": [_entry(each) for each in _below(origin)]}
        for key, origin in node.origins.items()
    ]
    return {"schema": SCHEMA, "node": node.name, "groups": list(node.groups), "keys": keys}


def _entry(origin: Origin) -> dict[str, object]:
    return {"value": origin.value, "level": origin.level.value, "where": str(origin.where)}


def _below(origin: Origin) -> Iterator[Origin]:
    below = origin.overrode
    while below is not None:
        yield below
        below = below.overrode


def _overridden(origin: Origin) -> str:
    """Return the weaker levels, strongest first; neighbours that say the same are told together.

    A default that says the same as the level above it, or nothing, is left out: nobody chose it.
    """
    runs: list[tuple[str, list[str]]] = []
    above = origin.value
    for each in _below(origin):
        if each.level is Level.DEFAULT and (each.value is None or _show(each.value) == _show(above)):
            continue
        if not runs or runs[-1][0] != _show(each.value):
            runs.append((_show(each.value), []))
        runs[-1][1].append(_who(each))
        above = each.value
    return "; ".join(f"{value} ({', '.join(levels)})" for value, levels in runs)


def _who(origin: Origin) -> str:
    return "default" if origin.level is Level.DEFAULT else str(origin.where)


def _show(value: object) -> str:
    """Return a value as it could stand in the file, in one line."""
    if isinstance(value, str) and _PLAIN.match(value):
        return value
    if isinstance(value, list | tuple):
        return f"[{', '.join(_show(each) for each in value)}]"
    return json.dumps(value)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
