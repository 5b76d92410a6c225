"""Reads JSON that people or other programs wrote: a key that is given twice and a number of any length are errors."""

from __future__ import annotations

import json
from typing import Any

_MAX_DIGITS = 1000  # shorter ones are refused by their key; Python itself reads 4,300, and names no place


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return what a text says; raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_int=lambda digits: _whole_number(digits, text))
    except RecursionError as error:
        raise ValueError("nested without end") from error


def _whole_number(digits: str, text: str) -> int:
    if len(digits) > _MAX_DIGITS:
        at = text.find(digits)
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise ValueError(f"a number of {len(digits)} digits: line {line} column {column}")
    return int(digits)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is given twice")
    return document
