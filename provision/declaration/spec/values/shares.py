"""Reads limits that are a number or a percentage."""

from __future__ import annotations

_WHOLE = 100


def count_of(limit: int | str, nodes: int) -> int:
    """Return a number, or a percentage of ``nodes``, rounded up."""
    if isinstance(limit, int):
        return limit
    return -(-int(limit.removesuffix("%")) * nodes // _WHOLE)
