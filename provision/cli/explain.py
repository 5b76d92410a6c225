"""Renders `grapnel check --explain`: every value, who set it, what that overrode, and what is derived later.

With a node, its own table; without one, a table for each set of nodes that the levels treat alike.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from provision.base.errors import UsageError
from provision.base.printable import printable
from provision.cli.terminal import paint
from provision.driver.derivation import derive
from provision.fleet.model import Level
from provision.spec.text.excerpt import few
from provision.spec.validate import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from provision.driver.derivation import Derivation
    from provision.fleet.model import Fleet, FleetNode, Origin

SCHEMA: Final = "grapnel.dev/explain/v1alpha1"
_HEAD: Final = ("KEY", "VALUE", "SET BY", "INSTEAD OF")
_PLAIN: Final = re.compile(r"[A-Za-z/][^\s:#,\[\]{}]*\Z")
_WIDEST: Final = 60  # of a text: a key in armor has thousands of characters


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
    head = f"{node.name}, weakest group first: {', '.join(node.groups)}" if node.groups else node.name
    return "\n".join([printable(head), "", *_table(node.origins, colour=colour), *_derived(derive(node.stack.driver))])


def render_fleet(nodes: Sequence[FleetNode], *, colour: bool = False) -> str:
    """Return a table for each set of nodes for which the same levels say the same.

    The tables after the first hold only what is different.
    """
    parts: list[str] = []
    first: FleetNode | None = None
    for alike in _alike(nodes):
        node = alike[0]
        origins, derived = node.origins, derive(node.stack.driver)
        head = f"{few([each.name for each in alike])}: declared in {', '.join(_levels(node))}"
        if first is not None:
            origins = {key: origin for key, origin in origins.items() if not _is_same(origin, first.origins.get(key))}
            derived = tuple(each for each in derived if each not in derive(first.stack.driver))
            head += "; what is different:"
        parts.append("\n".join([paint(printable(head), "1", colour=colour), "", *_table(origins, colour=colour)]))
        parts[-1] += "".join(f"\n{line}" for line in _derived(derived))
        first = first or node
    return "\n\n".join(parts)


def describe_node(node: FleetNode) -> dict[str, object]:
    """Return the same as JSON."""
    return {"schema": SCHEMA, "node": node.name, "groups": list(node.groups), **_content(node)}


def describe_fleet(nodes: Sequence[FleetNode]) -> list[dict[str, object]]:
    """Return all of it as JSON, also what tables leave out because it is the same."""
    return [
        {"nodes": [node.name for node in alike], "levels": _levels(alike[0]), **_content(alike[0])}
        for alike in _alike(nodes)
    ]


def _content(node: FleetNode) -> dict[str, object]:
    keys = [
        {"key": key, **_entry(origin), "overrode": [_entry(each) for each in _below(origin)]}
        for key, origin in node.origins.items()
    ]
    return {"keys": keys, "derived": [{"key": each.key, "rule": each.rule} for each in derive(node.stack.driver)]}


def _alike(nodes: Iterable[FleetNode]) -> list[list[FleetNode]]:
    sets: dict[str, list[FleetNode]] = {}
    for node in nodes:
        said = [(key, str(origin.where), origin.value) for key, origin in node.origins.items()]
        sets.setdefault(json.dumps(said, sort_keys=True), []).append(node)
    return list(sets.values())


def _is_same(origin: Origin, other: Origin | None) -> bool:
    return other is not None and (origin.value, str(origin.where)) == (other.value, str(other.where))


def _levels(node: FleetNode) -> list[str]:
    """Return the levels that set anything for a node, weakest first."""
    order = list(Level)
    found = {
        (order.index(each.level), _rank(node, each), each.where.source)
        for origin in node.origins.values()
        for each in (origin, *_below(origin))
        if each.level is not Level.DEFAULT
    }
    return [source for _, _, source in sorted(found)]


def _rank(node: FleetNode, origin: Origin) -> int:
    group = origin.where.source.removeprefix("group ")
    return node.groups.index(group) if group in node.groups else 0


def _table(origins: Mapping[str, Origin], *, colour: bool) -> Iterator[str]:
    rows = [
        tuple(map(printable, (key, _show(origin.value), _who(origin), _overridden(origin))))
        for key, origin in origins.items()
    ]
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    yield paint(_line(_HEAD, widths), "1", colour=colour)
    for row, origin in zip(rows, origins.values(), strict=True):
        dim = colour and origin.level is Level.DEFAULT
        yield paint(_line(row, widths), "2", colour=dim)


def _derived(derived: Sequence[Derivation]) -> Iterator[str]:
    """Yield what the table cannot hold: values that only the node decides."""
    if derived:
        yield ""
        yield "derived for each node when it is planned for:"
        width = max(len(each.key) for each in derived)
        for each in derived:
            yield f"  {each.key.ljust(width)}  {printable(each.rule)}"


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
    """Return a value as it could stand in the file, in one line; a long text is cut short."""
    if isinstance(value, str) and len(value) > _WIDEST:
        value = f"{value[:_WIDEST]}…"
    if isinstance(value, str) and _PLAIN.match(value):
        return value
    if isinstance(value, list | tuple):
        return f"[{', '.join(_show(each) for each in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
