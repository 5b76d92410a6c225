"""Reads Slurm's lists of nodes, such as ``gpu[01-03,07],login``. Pure."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NODES: Final = 100_000
_WORD: Final = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PART: Final = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def expand_hostlist(text: str) -> Iterator[str]:
    """Yield the nodes of a list, at most ``MAX_NODES``; what is not understood counts as a name."""
    left = MAX_NODES
    for word in _WORD.findall(text):
        parts = [_choices(inside) if inside else [outside] for inside, outside in _PART.findall(word)]
        for names in product(*parts):
            if left <= 0:
                return
            left -= 1
            yield "".join(names)


def _choices(inside: str) -> list[str]:
    """Return what stands for one pair of brackets; leading zeros are part of the names."""
    found: list[str] = []
    for each in inside.split(","):
        numbers = _RANGE.fullmatch(each)
        if numbers is None:
            found.append(each)
            continue
        first, last = numbers[1], numbers[2]
        end = min(int(last), int(first) + MAX_NODES - 1)
        found += [f"{number:0{len(first)}}" for number in range(int(first), end + 1)]
    return found
