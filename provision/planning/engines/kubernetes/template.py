"""Reads which handlers a template of containerd's configuration has: what somebody wrote into it himself.

A template is no TOML before it is rendered, and what was rendered from it may be older than it is. So it is read line
by line, as headers of tables and dotted keys. A name that is made when it is rendered is nobody's yet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from provision.planning.engines.containerd.configuration import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Name = tuple[str, ...]

_PART = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_NAME})\s*\]\s*(?:#.*)?$")
_SETTING = re.compile(rf"\s*({_NAME})\s*=\s*(.?)")
_PARTS = re.compile(_PART)
_ACTION = re.compile(r"\{\{[^{}]*\}\}")
_CRI = {"cri", *PLUGINS.values()}  # by the configuration's version: 1, 2, 3 and later
_RUNTIMES = ("plugins", "", "containerd", "runtimes")  # with the plugin's name in the second place


def find_handler(template: str, handlers: Collection[str]) -> tuple[str, int] | None:
    """Return the first of these handlers that a template has, with its line; None where it has none of them."""
    for line, name, _ in _names(template):
        if _is_on_the_way(name) and len(name) > len(_RUNTIMES) and name[len(_RUNTIMES)] in handlers:
            return name[len(_RUNTIMES)], line
    return None


def find_inline_table(template: str) -> int | None:
    """Return the line of an inline table of handlers, which no table can be added to; None where there is none."""
    for line, name, is_inline in _names(template):
        if is_inline and _is_on_the_way(name) and len(name) <= len(_RUNTIMES):
            return line
    return None


def _is_on_the_way(name: Name) -> bool:
    """Tell whether a name leads to containerd's handlers, or to what is in them."""
    plain = (*name[:1], *("" if each in _CRI else each for each in name[1:2]), *name[2 : len(_RUNTIMES)])
    return plain == _RUNTIMES[: len(plain)]


def _names(template: str) -> Iterator[tuple[int, Name, bool]]:
    """Yield every table and setting: its line, its whole name, and whether its value begins as an inline table."""
    table: Name = ()
    for number, line in enumerate(template.splitlines(), start=1):
        text = _ACTION.sub("", line)
        if header := _HEADER.match(text):
            table = _parts(header[1])
            yield number, table, False
        elif setting := _SETTING.match(text):
            yield number, (*table, *_parts(setting[1])), setting[2] == "{"


def _parts(name: str) -> Name:
    return tuple(part.strip("\"'") for part in _PARTS.findall(name))
