"""Writes a tree as TOML: a file of our own, in which nobody's comments or order have to be kept.

tomlkit's time for that grows with the square of the number of keys, a minute for 64 KiB of them; this is one pass.
"""

from __future__ import annotations

import json
import re
from datetime import date, time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def render_toml(tree: Mapping[str, Any], *, header: str) -> str:
    """Return the text of a tree below a comment of one line; every table has its values before its subtables."""
    blocks = [f"# {header}\n{_lines(tree)}", *_tables(tree, ())]
    return "\n".join(block for block in blocks if block)


def _tables(tree: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[str]:
    """Yield a block for each subtable that says something, or that has nothing in it at all."""
    for key, value in tree.items():
        if isinstance(value, dict):
            path = (*keys, key)
            lines = _lines(value)
            if lines or not value:
                yield f"[{'.'.join(map(_key, path))}]\n{lines}"
            yield from _tables(value, path)


def _lines(table: Mapping[str, Any]) -> str:
    values = ((key, value) for key, value in table.items() if not isinstance(value, dict))
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values)


def _value(value: Any) -> str:  # noqa: ANN401 - any of TOML's
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{_key(key)} = {_value(each)}' for key, each in value.items())}}}"
        case date() | time():  # a datetime is a date
            return value.isoformat()
        case _:
            return repr(value)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """Return a basic string: JSON's, which leaves DEL as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
