"""Shortens lists of node names that are counted up, as people name their machines. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORTEST: Final = 3  # names in a row from which only the first and the last are shown
_NUMBERED: Final = re.compile(r"^(.*?)([0-9]{1,18})([^0-9]*)$")


def in_series(nodes: Sequence[str]) -> list[str]:
    """Return node names in order, consecutive numbers together: ``n7, gpu001 to gpu040``."""
    found: list[list[str]] = []
    for node in sorted(nodes, key=_number):
        if found and _follows(found[-1][-1], node):
            found[-1].append(node)
        else:
            found.append([node])
    spans = ([f"{one[0]} to {one[-1]}"] if len(one) >= _SHORTEST else one for one in found)
    return [name for span in spans for name in span]


def _number(node: str) -> tuple[str, int, str]:
    match = _NUMBERED.match(node)
    return (match.group(1), int(match.group(2)), match.group(3)) if match else (node, -1, "")


def _follows(before: str, node: str) -> bool:
    """Tell whether a name is the next one of a series: the same words, and numbers as they are counted up."""
    (first, number, last), this = _number(before), _number(node)
    width = len(before) - len(first) - len(last)
    return number >= 0 and this == (first, number + 1, last) and node == f"{first}{number + 1:0{width}}{last}"
