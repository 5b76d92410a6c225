"""Text that an ordinary user of the node chose (names of processes, units, files), made fit to be shown. Pure."""

from __future__ import annotations

MAX_SHOWN = 256  # characters: more than a unit's name may have


def printable(text: str, limit: int = MAX_SHOWN) -> str:
    """Return a text of at most `limit` visible characters; others are spelled out as Python spells them."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:limit])
    return shown if len(shown) <= limit and len(text) <= limit else shown[: limit - 1] + "…"
