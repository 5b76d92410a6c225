"""Converts machines to lines of `path=value` and back, and sets values by path. The C parser is src/machine.c."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from lab.nvml.errors import PathError
from lab.nvml.machine import (
    Activity,
    Ecc,
    Event,
    Failure,
    Gpu,
    Link,
    Machine,
    MemoryLimit,
    Mig,
    Process,
    RemappedRows,
    item_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORDS = (Machine, Gpu, Activity, Ecc, RemappedRows, Process, Link, Mig, Event, Failure, MemoryLimit)
_TYPES: dict[type, dict[str, Any]] = {record: get_type_hints(record) for record in _RECORDS}
_WORD = re.compile(r"([a-z_0-9]*?[a-z_])(\d+)?")


def encode(machine: Machine) -> str:
    """Return all values of the machine, one per line."""
    return "".join(f"{path}={value}\n" for path, value in walk(machine))


def walk(record: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and printed value of every value in a record, lists in order."""
    for of in fields(record):
        value = getattr(record, of.name)
        item = item_name(of)
        if item:
            for position, element in enumerate(value):
                yield from walk(element, f"{prefix}{item}{position}.")
        elif is_dataclass(value):
            yield from walk(value, f"{prefix}{of.name}.")
        else:
            yield f"{prefix}{of.name}", str(int(value) if isinstance(value, int) else value)


def decode(text: str) -> Machine:
    """Return the machine that `encode` turned into the text; missing values get their defaults.

    Raises PathError for an invalid line.
    """
    tree: dict[str, Any] = {}
    for line in text.splitlines():
        path, separator, value = line.partition("=")
        if not separator:
            raise PathError(f"not a path and a value: {line}")
        _plant(tree, path.split("."), value)
    return _merge(Machine(), tree)


def change(machine: Machine, path: str, value: str) -> Machine:
    """Return the machine with the value at `path` replaced; naming the next position extends a list.

    Raises PathError for a path that does not exist and for a value of the wrong type.
    """
    tree: dict[str, Any] = {}
    _plant(tree, path.split("."), value)
    return _merge(machine, tree)


def _merge(machine: Machine, tree: dict[str, Any]) -> Machine:
    for word, branch in tree.items():
        machine = _assign(machine, word, branch)
    return machine


def _plant(tree: dict[str, Any], words: list[str], value: str) -> None:
    for word in words[:-1]:
        tree = tree.setdefault(word, {})
    tree[words[-1]] = value


def _assign(record: Any, word: str, branch: Any) -> Any:
    of, position = _find(record, word)
    kind = _TYPES[type(record)][of.name]
    current = getattr(record, of.name)
    if position is None:
        return replace(record, **{of.name: _value(kind, current, word, branch)})
    if position > len(current):
        raise PathError(f"{word} is not the next one: there are {len(current)}")
    elements = list(current)
    if position == len(elements):
        elements.append(get_args(kind)[0]())
    elements[position] = _value(type(elements[position]), elements[position], word, branch)
    return replace(record, **{of.name: tuple(elements)})


def _find(record: Any, word: str) -> tuple[dataclasses.Field[Any], int | None]:
    match = _WORD.fullmatch(word)
    for of in fields(record):
        item = item_name(of)
        if item and match and match[1] == item and match[2]:
            return of, int(match[2])
        if not item and of.name == word:
            return of, None
    names = ", ".join(f"{item_name(of)}N" if item_name(of) else of.name for of in fields(record))
    raise PathError(f"no value {word} in {type(record).__name__.lower()}", hint=f"values: {names}")


def _value(kind: Any, current: Any, word: str, branch: Any) -> Any:
    if is_dataclass(current):
        if not isinstance(branch, dict):
            raise PathError(f"{word} is not a single value", hint=f"name one of its fields: {word}.…")
        for inner, part in branch.items():
            current = _assign(current, inner, part)
        return current
    if isinstance(branch, dict):
        raise PathError(f"{word} has no fields")
    return _scalar(kind, word, branch)


def _scalar(kind: Any, word: str, text: str) -> Any:
    if kind is str:
        return text
    if kind is bool and text in {"0", "1", "true", "false"}:
        return text in {"1", "true"}
    if kind is int:
        try:
            return int(text, 0)
        except ValueError as error:
            raise PathError(f"{word} takes a whole number, not {text}") from error
    raise PathError(f"{word} takes 0 or 1, not {text}")
