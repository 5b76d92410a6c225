"""Knows the names of files that only lie beside others while those are exchanged: a killed run leaves them."""

from __future__ import annotations

import re

_LEFTOVER = re.compile(r"\..+\.grapnel-(?:new|old)")


def is_leftover(name: str) -> bool:
    """Tell whether a file has the name of one that only lies beside another while that is exchanged."""
    return _LEFTOVER.fullmatch(name) is not None
