"""Reads which handlers an engine's settings have, and which of them is the default: of any engine, TOML or JSON.

TOML is read line by line, as far as names of tables and settings go: a node's Python may have no parser of it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

Name = tuple[str, ...]

_HOOK = "/usr/lib/grapnel/hook/"
_ANNOTATION = "grapnel.dev/handler"  # of grapnel's handler of CRI-O
_WHOLE = frozenset({"runtime_type", "runtime_path", "inherit_default_runtime", "path", "runtimeType"})
# As engines' files, settings of distributions (YAML) and command lines have it.
_DEFAULT = re.compile(
    r"""^[^#\n]*?\b(?:default_runtime(?:_name)?["']?[ \t]*=|default-runtime(?:["']?[ \t]*[:=]|[ \t]))"""
    r"""[ \t]*["']?([A-Za-z0-9._-]+)""",
    re.MULTILINE,
)

_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_NAME})\s*\]\s*(?:#.*)?$")
_SETTING = re.compile(rf"\s*({_NAME})\s*=\s*(.*)$")
_PARTS = re.compile(_PART)


@dataclass
class Handler:
    """What a text has of a handler, from ``line`` on."""

    line: int
    keys: set[str] = field(default_factory=set)
    is_ours: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the engine takes it for a handler, and not for settings of one."""
        return not _WHOLE.isdisjoint(self.keys)


def handlers_in(text: str) -> dict[str, Handler]:
    """Return what a text of any engine has of handlers, by name."""
    return _of_json(text) if _is_json(text) else _of_toml(text)


def defaults_in(text: str) -> list[str]:
    """Return the names that a text gives the default runtime, in its order."""
    if not _is_json(text):
        return _DEFAULT.findall(text)
    name = _tree(text).get("default-runtime")
    return [name] if isinstance(name, str) else []


def says_default(line: str, name: str) -> bool:
    """Tell whether a line gives the default runtime this name."""
    return name in _DEFAULT.findall(line) or ('"default-runtime"' in line and json.dumps(name) in line)


def _is_json(text: str) -> bool:
    """Tell Docker's file from the others, of which templates begin with two braces."""
    start = text.lstrip("\ufeff \t\r\n")
    return start.startswith("{") and not start.startswith("{{")


def _tree(text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _of_json(text: str) -> dict[str, Handler]:
    runtimes = _tree(text).get("runtimes")
    lines = text.splitlines()
    found = {}
    for name, entry in runtimes.items() if isinstance(runtimes, dict) else ():
        line = next((number for number, each in enumerate(lines, start=1) if f"{json.dumps(name)}:" in each), 1)
        keys = set(entry) if isinstance(entry, dict) else set()
        found[name] = Handler(line, keys, is_ours="path" in keys and str(entry["path"]).startswith(_HOOK))
    return found


def _of_toml(text: str) -> dict[str, Handler]:
    found: dict[str, Handler] = {}
    for line, name, value in _names(text):
        place = name.index("runtimes") if "runtimes" in name else len(name)
        if name[place - 1 : place] not in (("containerd",), ("runtime",)) or len(name) < place + 2:
            continue
        handler = found.setdefault(name[place + 1], Handler(line))
        handler.keys.update(name[place + 2 : place + 3])
        handler.is_ours |= f"{OWN_FOLDER}/" in value or _ANNOTATION in name
    return found


def _names(text: str) -> Iterator[tuple[int, Name, str]]:
    """Yield every table and setting with its line, its whole name, and the value as it is written; none of a table."""
    table: Name = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            yield number, table, ""
        elif setting := _SETTING.match(line):
            yield number, (*table, *_parts(setting[1])), setting[2]


def _parts(name: str) -> Name:
    return tuple(part.strip("\"'") for part in _PARTS.findall(name))
