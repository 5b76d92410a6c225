"""Reads YAML text into plain values that remember where they stand.

Accepts a deliberately small YAML: one document, text keys, no anchors, aliases, merge keys
or foreign tags (groups of the inventory are how declarations share values). Everything that is wrong with the text is
gathered, not only the first thing; what cannot be read becomes UNREADABLE, so that nothing complains about it twice.
Knows nothing of GpuStack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, cast

import yaml

from provision.declaration.spec.text.broken_yaml import explain
from provision.declaration.spec.text.findings import Finding, KeyPath, Place, Severity, dotted

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 32
MAX_DIGITS: Final = 18
UNREADABLE: Final = object()
"""Stands for a value about which a finding was made already."""

_CORE: Final = "tag:yaml.org,2002:"
_LINE_END: Final = re.compile("[\n\r\x85\u2028\u2029]")  # what PyYAML counts lines by
_SCALARS: Final = frozenset(_CORE + name for name in ("null", "bool", "int", "float", "str", "timestamp", "value"))
_UNREADABLE_TAG: Final = "!unreadable"


@dataclass
class Document:
    """A text as plain values; `keys`, `values` and `written` tell where each stands and how it was spelled.

    `is_broken` tells that the text is not YAML at all, unlike YAML that is not supported.
    """

    name: str
    lines: list[str]
    content: object = UNREADABLE
    is_broken: bool = False
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    values: dict[KeyPath, Place] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def key_place(self, path: KeyPath) -> Place:
        """Return where a key stands; for a list's entry, where the entry stands."""
        return self.keys.get(path) or self.value_place(path)

    def value_place(self, path: KeyPath) -> Place:
        """Return where a value stands; for one that was not written, the nearest key above it."""
        place = self.values.get(path) or self.keys.get(path)
        if place or not path:
            return place or self.place(0, 0)
        return self.key_place(path[:-1])

    def written(self, path: KeyPath) -> str | None:
        """Return an unquoted value as it was spelled, None for a quoted one."""
        return self.texts.get(path)

    def place(self, line: int, column: int, width: int = 1) -> Place:
        """Return a place of this text; line and column count from 0 here."""
        text = self.lines[line] if line < len(self.lines) else ""
        return Place(self.name, line + 1, column + 1, max(1, width), text)

    def report(self, place: Place, message: str, hint: str, path: KeyPath = ()) -> None:
        """Remember an error."""
        self.findings.append(Finding(Severity.ERROR, place, dotted(path), message, hint))


def read_document(data: bytes, name: str) -> Document:
    """Read a text; `findings` tells what is wrong with it, `content` is UNREADABLE where nothing could be read."""
    if len(data) > MAX_BYTES:
        document = Document(name, [])
        document.report(document.place(0, 0), f"is larger than {MAX_BYTES // 1024} KiB", "a declaration is small")
        return document
    text, undecoded = _decode(data)
    document = Document(name, _LINE_END.split(text))
    if undecoded is not None:
        document.is_broken = True
        line, column = _position(text, undecoded)
        document.report(document.place(line, column), "is not UTF-8 from here on", "save the file as UTF-8")
        return document
    _compose(document, text)
    return document


def _decode(data: bytes) -> tuple[str, int | None]:
    """Return the text with line feeds as line ends, and the index of the first byte that is no UTF-8."""
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n"), None
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8").replace("\r\n", "\n")
        return good, len(good)


def _position(text: str, index: int) -> tuple[int, int]:
    before = _LINE_END.split(text[:index])
    return len(before) - 1, len(before[-1])


def _report_empty(document: Document) -> None:
    document.report(document.place(0, 0), "is empty", "`grapnel init -f FILE` writes one to start from")


def _compose(document: Document, text: str) -> None:
    try:
        loader = _Composer(text, document)
        root = loader.compose_only_document()
        if root is None:
            _report_empty(document)
        else:
            document.content = _Reader(document, loader).read(root, ())
    except yaml.reader.ReaderError as error:
        document.is_broken = True
        line, column = _position(text, int(error.position))
        code = f"U+{ord(error.character):04X}" if isinstance(error.character, str) else f"U+{error.character:04X}"
        document.report(document.place(line, column), f"contains the control character {code}", "remove it")
    except yaml.MarkedYAMLError as error:
        document.is_broken = True
        told = explain(error, document.lines)
        document.report(document.place(told.line, told.column), told.message, told.hint)


class _Composer(yaml.SafeLoader):
    """Composes one document; anchors and aliases become findings, so no text can grow while it is read."""

    def __init__(self, text: str, document: Document) -> None:
        super().__init__(text)
        self.document = document
        self.depth = 0
        self.refused: set[str] = set()

    def compose_only_document(self) -> yaml.Node | None:
        self._take()
        if self.check_event(yaml.StreamEndEvent):
            return None
        node = self.compose_document()
        if not self.check_event(yaml.StreamEndEvent):
            place = self._place(self._next(), 3)
            self.document.report(place, "a second document starts here", "one file holds one declaration")
        return node

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self._next()
        if isinstance(event, yaml.AliasEvent):
            self._refuse(self._take(), f"the alias *{event.anchor}")
            return yaml.ScalarNode(_UNREADABLE_TAG, "", _mark(event), _mark(event))
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._refuse(event, f"the anchor &{event.anchor}")
            event.anchor = None
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(problem=f"more than {MAX_DEPTH} levels", problem_mark=_mark(event))
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _refuse(self, event: yaml.Event, what: str) -> None:
        if what not in self.refused:
            hint = "write the value out; groups of the inventory share values"
            self.document.report(self._place(event), f"{what} is not supported", hint)
        self.refused.add(what)

    def _place(self, event: yaml.Event, width: int = 1) -> Place:
        mark = _mark(event)
        return self.document.place(mark.line, mark.column, width)

    def _next(self) -> yaml.Event:
        return cast("yaml.Event", self.peek_event())  # type: ignore[no-untyped-call]  # the stubs lack it

    def _take(self) -> yaml.Event:
        return cast("yaml.Event", self.get_event())  # type: ignore[no-untyped-call]  # the stubs lack it


def _mark(event: yaml.Event) -> yaml.Mark:
    return cast("yaml.Mark", event.start_mark)


class _Reader:
    """Turns composed nodes into plain values, and remembers places."""

    def __init__(self, document: Document, loader: _Composer) -> None:
        self.document = document
        self.loader = loader

    def read(self, node: yaml.Node, path: KeyPath) -> object:
        self.document.values[path] = self._place(node)
        if isinstance(node, yaml.MappingNode) and node.tag == _CORE + "map":
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _CORE + "seq":
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            return self._read_scalar(node, path)
        if node.tag != _UNREADABLE_TAG:
            self.document.report(self._place(node), f"the tag {_short(node.tag)} is not supported", "remove it", path)
        return UNREADABLE

    def _read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        content: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._read_key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            if key in content:
                first = self.document.keys[here].line
                place = self._place(key_node)
                self.document.report(place, "is written twice", f"the first one is in line {first}", here)
                continue
            self.document.keys[here] = self._place(key_node)
            content[key] = self.read(value_node, here)
        return content

    def _read_key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if node.tag in {_CORE + "str", _CORE + "value"} and isinstance(node.value, str):
            return node.value
        if node.tag == _CORE + "merge":
            hint = "write the values out; groups of the inventory share values"
            self.document.report(self._place(node), "the merge key << is not supported", hint, path)
        elif node.tag != _UNREADABLE_TAG:
            hint = f'quote it: "{node.value}"' if isinstance(node, yaml.ScalarNode) else "a key is one word"
            self.document.report(self._place(node), "this key is not text", hint, path)
        return None

    def _read_scalar(self, node: yaml.ScalarNode, path: KeyPath) -> object:
        if node.style is None:
            self.document.texts[path] = node.value
        kind = node.tag.removeprefix(_CORE)
        if kind in {"int", "float"} and len(node.value) > MAX_DIGITS:
            self.document.report(self._place(node), "has too many digits", "quote it if it is text", path)
            return UNREADABLE
        if kind in {"str", "timestamp", "value"}:
            return node.value
        return self.loader.construct_object(node)

    def _place(self, node: yaml.Node) -> Place:
        start, end = node.start_mark, node.end_mark
        line = self.document.lines[start.line] if start.line < len(self.document.lines) else ""
        stop = end.column if end.line == start.line else len(line.rstrip())
        return self.document.place(start.line, start.column, stop - start.column)


def _short(tag: str) -> str:
    return tag.replace(_CORE, "!!")
