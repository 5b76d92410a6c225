"""Reads JSON documents: bounded in size, each key once, each member of its kind. Pure.

Every fault is a ValueError that says what is wrong; whoever reads a file adds its name and what helps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Parser = Callable[[object], Any]  # of one value; raises ValueError: "must be …"

_Value = TypeVar("_Value")
_REQUIRED = object()
MAX_NUMBER = 2**64
_MAX_DIGITS = 1000  # shorter numbers are refused by their key; Python itself reads 4,300, and names no place


# Whole documents


def read_object(content: bytes | str, max_bytes: int) -> dict[str, Any]:
    """Return the members of a document."""
    document = load(content, max_bytes)
    if not isinstance(document, dict):
        raise ValueError("must be a json object")
    return document


def read_versioned(content: bytes | str, max_bytes: int, schema: str) -> dict[str, Any]:
    """Return the members of a document whose `schema` is this one."""
    document = load(content, max_bytes)
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise ValueError(f'schema is not "{schema}"')
    return document


def load(content: bytes | str, max_bytes: int) -> object:
    """Return what a document holds, of whatever kind it is."""
    if len(content) > max_bytes:
        raise ValueError(f"larger than {max_bytes} bytes")
    try:
        return parse_json(content if isinstance(content, str) else content.decode())
    except RecursionError as error:
        raise ValueError("not valid json: nested without end") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid json: not utf-8 text: {error}") from error
    except ValueError as error:
        raise ValueError(f"not valid json: {error}") from error


def parse_json(document: str) -> object:
    """Return what a text holds; RecursionError where it is nested too deeply."""
    return json.loads(
        document,
        object_pairs_hook=_refuse_duplicates,
        parse_int=lambda digits: _whole_number(digits, document),
    )


def _whole_number(digits: str, document: str) -> int:
    if len(digits) > _MAX_DIGITS:
        at = document.find(digits)
        line, column = document.count("\n", 0, at) + 1, at - document.rfind("\n", 0, at)
        raise ValueError(f"a number of {len(digits)} digits: line {line} column {column}")
    return int(digits)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is given twice")
    return document


# Members


def member(document: object, key: str, parse: Callable[[object], _Value], default: Any = _REQUIRED) -> _Value:
    """Return one member; the default where there is none."""
    held = members(document)
    if key not in held:
        if default is _REQUIRED:
            raise ValueError(f"{key} is missing")
        return default  # type: ignore[no-any-return] # the caller's
    try:
        return parse(held[key])
    except ValueError as error:
        raise ValueError(f"{key} {error}") from error


def parse_known(document: Mapping[str, Any], parsers: Mapping[str, Parser]) -> tuple[dict[str, Any], list[str]]:
    """Return the members that have a parser, and what is wrong with each of the others of those."""
    values, problems = {}, []
    for key in document.keys() & parsers.keys():
        try:
            values[key] = parsers[key](document[key])
        except ValueError as error:
            problems.append(f"{key}: {error}")
    return values, sorted(problems)


# Values


def members(value: object) -> dict[str, Any]:
    """Return an object's members."""
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    return value


def truth(value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def text(max_length: int | None = None) -> Callable[[object], str]:
    """Take a text."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or (max_length is not None and len(value) > max_length):
            limit = "" if max_length is None else f" of at most {max_length} characters"
            raise ValueError(f"must be a text{limit}")
        return value

    return parse


def whole(least: int = 0, end: int = MAX_NUMBER) -> Callable[[object], int]:
    """Take a whole number from `least` to below `end`."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < end:
            limit = f" to {end - 1}" if end < 2**53 else ""
            raise ValueError(f"must be a whole number from {least}{limit}")
        return value

    return parse


def seconds(end: float) -> Callable[[object], float]:
    """Take a number of seconds from 0 to below `end`."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < end:
            raise ValueError("must be a number of seconds from 0")
        return float(value)

    return parse


def optional(parse: Callable[[object], _Value]) -> Callable[[object], _Value | None]:
    """Take null as well, which is None."""
    return lambda value: None if value is None else parse(value)


def list_of(parse: Callable[[object], _Value], max_length: int | None = None) -> Callable[[object], tuple[_Value, ...]]:
    """Take a list of values of one kind."""

    def parse_list(value: object) -> tuple[_Value, ...]:
        if not isinstance(value, list) or (max_length is not None and len(value) > max_length):
            limit = "" if max_length is None else f" of at most {max_length}"
            raise ValueError(f"must be a list{limit}")
        return tuple(map(parse, value))

    return parse_list
