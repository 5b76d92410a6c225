"""Writes many node names in few words: ``gpu001..gpu040`` for names that are counted up. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LAST_NUMBER: Final = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)", re.DOTALL)
_BETWEEN: Final = ".."
_LEAST: Final = 3  # names in a row that are worth a span


def collapse(names: Iterable[str]) -> list[str]:
    """Return the names in order, those that follow one another as one span."""
    runs: list[list[str]] = []
    for name in sorted(names, key=_key):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return [word for run in runs for word in _words(run)]


def expand(spans: Iterable[str], limit: int) -> Iterator[str]:
    """Yield the names, at most ``limit``; what is not a valid span counts as a name."""
    for span in spans:
        for name in _names(span, limit):
            if limit <= 0:
                return
            limit -= 1
            yield name


def _words(run: list[str]) -> list[str]:
    return [f"{run[0]}{_BETWEEN}{run[-1]}"] if len(run) >= _LEAST else run


def _names(span: str, limit: int) -> Iterator[str]:
    first, _, last = span.partition(_BETWEEN)
    (head, low, tail), (end_head, high, end_tail) = _parts(first), _parts(last)
    if not (low and high) or (head, tail) != (end_head, end_tail) or int(low) > int(high):
        yield span
        return
    for number in range(int(low), min(int(high), int(low) + limit) + 1):
        yield f"{head}{number:0{len(low)}}{tail}"


def _parts(name: str) -> tuple[str, str, str]:
    found = _LAST_NUMBER.fullmatch(name)
    return (found[1], found[2], found[3]) if found else (name, "", "")


def _key(name: str) -> tuple[str, str, int, str]:
    head, number, tail = _parts(name)
    return head, tail, int(number or -1), name


def _follows(before: str, name: str) -> bool:
    head, number, tail = _parts(before)
    return bool(number) and name == f"{head}{int(number) + 1:0{len(number)}}{tail}"
