"""Renders `grapnel explain`: what a key of the declaration means, from its schema; and `grapnel check --explain`.

The latter is every value, who set it, what that overrode, and what is derived later: with a node, its own table;
without one, a table for each set of nodes that the levels treat alike. What `grapnel explain` says of a pod, a node
or a claim of a cluster is in `provision.cli.look.explain_gpus`.
"""

from __future__ import annotations

import json
import re
import textwrap
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.base.errors import ExitCode, GrapnelError
from provision.base.printable import printable
from provision.cli.terminal import paint
from provision.declaration.fleet.model import Level
from provision.declaration.spec.model import StackSpec
from provision.declaration.spec.text.excerpt import few
from provision.planning.driver.derivation import derive

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from provision.declaration.fleet.model import FleetNode, Origin
    from provision.planning.driver.derivation import Derivation

SCHEMA: Final = "grapnel.dev/explain/v1alpha1"
NEEDS_NAME: Final = frozenset({"pod", "claim"})  # `node` alone is a section of the declaration
_THINGS: Final = {  # what else a person may have meant by no key, and by this one
    "": "`grapnel explain pod NAMESPACE/NAME` says why a pod of a cluster has the GPUs that it has, or none;\n"
    "`grapnel explain node NAME` why a node waits, or has what it has; `claim NAMESPACE/NAME` is for claims.",
    "node": "`grapnel explain node NAME` says of a node of a cluster why it waits, or has what it has.",
}
_HEAD: Final = ("KEY", "VALUE", "SET BY", "INSTEAD OF")
_PLAIN: Final = re.compile(r"[A-Za-z/][^\s:#,\[\]{}]*\Z")
_WIDEST: Final = 60  # of a text: a key in armor has thousands of characters
_PAGE: Final = 100  # columns
_NEAR: Final = 3
_KINDS: Final = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "object": "a mapping",
    "string": "a text",
}
_LIMITS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "minItems": "entries, at least",
    "pattern": "written as",
}


def run(args: argparse.Namespace) -> int:
    """Print what a key means, with the keys below it; without one, the sections. With a name: of a pod, or a node."""
    thing = args.key.lower().removesuffix("s")  # kubectl takes Pod, pods and Nodes, too
    if args.name is not None or thing in NEEDS_NAME:
        args.key = thing
        from provision.cli.look.explain_gpus import explain_thing  # noqa: PLC0415 - 300 ms

        return explain_thing(args)
    print(explain_key(args.key), end="")
    return ExitCode.DONE


def explain_key(asked: str) -> str:
    """Return what a key means, as "driver.version" or with "spec." in front. Raises GrapnelError for none."""
    schema = msgspec.json.schema(StackSpec)
    top = _resolved({"$ref": "#/$defs/StackSpec"}, schema)
    known = dict(_walk(top, schema, ""))
    key = asked.removeprefix("spec").removeprefix(".")
    if not key:
        return "".join(_below_key("", known))
    if (found := {name.lower(): name for name in known}.get(key.lower())) is None:
        near = _near(key, list(known))
        thing = "pod" if "/" in asked else "node"
        sections = f"`grapnel explain` lists the sections; of a {thing}: `grapnel explain {thing} {asked}`"
        hint = f"did you mean {' or '.join(near)}?" if near else sections
        raise GrapnelError(f"the declaration has no key '{asked}'", hint=hint)
    return "".join((*_about(found, known[found], schema), *_below_key(found, known)))


def every_key() -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield each key, what it is, its sentence, and "default: auto" and the like, in the order of the model."""
    schema = msgspec.json.schema(StackSpec)
    for key, member in _walk(_resolved({"$ref": "#/$defs/StackSpec"}, schema), schema, ""):
        yield key, _kind(member, schema), member["description"], list(dict.fromkeys(_limits(member, schema)))


def _near(key: str, known: Sequence[str]) -> list[str]:
    """Return the keys that were probably meant: by the whole of a path, by its last word, or by a word alone."""
    ends = {name: name.rpartition(".")[2].lower() for name in known}
    alike = get_close_matches(key.rpartition(".")[2].lower(), {*ends.values()}, n=1, cutoff=0.7)
    by_end = [name for name, end in ends.items() if end in alike]
    whole = get_close_matches(key, known, n=_NEAR, cutoff=0.7)
    return list(dict.fromkeys([*whole, *by_end] if "." in key else by_end or whole))[:_NEAR]


def _about(key: str, member: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"spec.{key}: {_kind(member, schema)}\n"
    yield textwrap.fill(member["description"], _PAGE, initial_indent="  ", subsequent_indent="  ") + "\n"
    yield from (f"  {line}\n" for line in dict.fromkeys(_limits(member, schema)))


def _limits(member: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    if "default" in member and not isinstance(member["default"], dict):
        yield f"default: {_show(member['default'])}"
    told = list(_alternatives(member, schema))
    if allowed := list(dict.fromkeys(word for each in told for word in each.get("enum", ()))):
        yield f"allowed: {', '.join(map(_show, allowed))}"
    for name, words in _LIMITS.items():
        yield from (f"{words}: {each[name]}" for each in told if name in each)
    yield from (f"for example: {_show(example)}" for each in told for example in each.get("examples", ())[:1])


def _below_key(key: str, known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    prefix = f"{key}." if key else ""
    below = {name: each for name, each in known.items() if name.startswith(prefix) and "." not in name[len(prefix) :]}
    width = max((len(name) - len(prefix) for name in below), default=0)
    if key and below:
        yield "\n"
    for name, each in below.items():
        first = f"  {name[len(prefix) :].ljust(width)}  "
        yield textwrap.fill(each["description"], _PAGE, initial_indent=first, subsequent_indent=" " * len(first)) + "\n"
    if below:
        costs = "`grapnel plan` shows what a change of it costs nodes"
        yield f"\n`grapnel explain {prefix}KEY` says more of one; {costs}.\n"
    if key in _THINGS:
        yield f"{_THINGS[key]}\n"


def _walk(
    section: Mapping[str, Any], schema: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every key with its schema; those of entries of a list or a mapping stand below the key that has them."""
    for name, member in section.get("properties", {}).items():
        yield f"{prefix}{name}", {"description": _resolved(member, schema).get("description", ""), **member}
        for each in _alternatives(member, schema):
            yield from _walk(each, schema, f"{prefix}{name}.")


def _alternatives(member: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what a value may be, and what entries of it may be."""
    known = _resolved(member, schema)
    yield known
    inner = [*known.get("anyOf", ()), *(known[name] for name in ("items", "additionalProperties") if known.get(name))]
    for each in inner:
        if isinstance(each, dict):
            yield from _alternatives(each, schema)


def _kind(member: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    known = _resolved(member, schema)
    if "anyOf" in known:
        return " or ".join(dict.fromkeys(_kind(each, schema) for each in known["anyOf"]))
    if "enum" in known:
        return "one of the words below"
    return _KINDS[known["type"]] + (f", each entry {_kind(known['items'], schema)}" if known.get("items") else "")


def _resolved(member: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in member:
        return member
    return {**schema["$defs"][member["$ref"].rpartition("/")[2]], **member}


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

    A default that says the same as the level above it, or nothing, is left out: it was not chosen.
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
