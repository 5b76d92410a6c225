"""Defines what all values of a node's facts have in common: they are tolerant, and their free text is printable."""

from __future__ import annotations

import msgspec

from provision.base.printable import printable

COMMAND = 128  # characters of a name that a user of the node chose
MESSAGE = 2000


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A tolerant value: fields it does not know are ignored."""


def tidy(value: Fact, name: str, limit: int) -> None:
    """Make a text, or each of a tuple of texts, printable that somebody on the node chose."""
    text = getattr(value, name)
    if isinstance(text, tuple):
        shown: object = tuple(printable(each, limit=limit) for each in text)
    else:
        shown = None if text is None else printable(text, limit=limit)
    msgspec.structs.force_setattr(value, name, shown)
