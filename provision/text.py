"""Text that somebody else wrote, made fit for one line of a message."""

from __future__ import annotations

from typing import Final

LONGEST: Final = 300
_SUBSTITUTE: Final = "\N{REPLACEMENT CHARACTER}"


def presentable(text: str, limit: int = LONGEST) -> str:
    """Return the text on one line of at most ``limit`` characters, with nothing in it that a terminal would act on."""
    line = " ".join(text[: 2 * limit].split())
    shown = "".join(char if char.isprintable() else _SUBSTITUTE for char in line)
    return shown if len(shown) <= limit and len(text) <= 2 * limit else f"{shown[: limit - 1]}…"
