"""Text that somebody else wrote, made fit to be shown."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 300
_SUBSTITUTE: Final = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return the text with a substitute for everything that a terminal might act on, line feeds included."""
    return "".join(char if char.isprintable() else _SUBSTITUTE for char in text)


def presentable(text: str, limit: int = LONGEST) -> str:
    """Return the text on one line of at most ``limit`` characters, all of them printable."""
    line = printable(" ".join(text[: 2 * limit].split()))
    is_whole = len(line) <= limit and len(text) <= 2 * limit
    return line if is_whole else f"{line[: limit - 1]}…"
