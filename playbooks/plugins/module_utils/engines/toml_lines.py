"""Reads TOML line by line, as far as names of tables and settings go: a node's Python may have no parser of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Name = tuple[str, ...]

_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_NAME})\s*\]\s*(?:#.*)?$")
_SETTING = re.compile(rf"\s*({_NAME})\s*=\s*(.*)$")
_PARTS = re.compile(_PART)


def read_names(text: str) -> Iterator[tuple[int, Name, str]]:
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
