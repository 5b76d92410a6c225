r"""Makes text from elsewhere fit to be shown: nothing in it moves the cursor, hides, reorders or adds a line. Pure.

Node names, versions, paths, process names and messages come from machines that may belong to somebody else by now, and
what a person consents to is read off a terminal. A character that does more than take its cells is spelled out, as
Python spells it (``\x1b``, ``\u202e``), so that it is seen and columns stay columns.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

MAX_SHOWN: Final = 2000  # characters of one value
MAX_BRIEF: Final = 200  # characters of a reason where there are many
MAX_LINES: Final = 200  # of one message
_MARKS: Final = frozenset({"Mn", "Me"})  # drawn over the character before, as many as there are
# Letters by their category, and blank on every screen: Hangul fillers, an empty Braille cell.
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def printable(text: str, *, limit: int = MAX_SHOWN) -> str:
    """Return the text as one line of at most ``limit`` visible characters; what is longer says how long it is."""
    shown = text[: limit + 1]
    if not (shown.isascii() and shown.isprintable()):
        shown = "".join(map(_spell, unicodedata.normalize("NFC", shown)))
    if len(shown) <= limit:
        return shown
    end = f"… ({len(text)} characters)"
    return shown[: max(0, limit - len(end))] + end


def brief(text: str, *, limit: int = MAX_BRIEF) -> str:
    """Return a reason as tables and Events repeat it: a longer one ends where a part of it does, with ``…``."""
    if len(text) <= limit:
        return text
    parts = max(text.rfind("; ", 0, limit), text.rfind(". ", 0, limit))
    ends = (parts, text.rfind(" ", 0, limit), limit)
    end = next(each for each in ends if each >= limit // 3)  # where it says enough
    return f"{text[:end].rstrip(' ,:;.')} …"


def printable_lines(text: str, *, indent: str = "") -> str:
    """Return a text of several lines, each of them printable; all but the first begin with ``indent``."""
    lines = text.split("\n")
    shown = [printable(line) for line in lines[:MAX_LINES]]
    more = [f"… ({len(lines) - MAX_LINES} more lines)"] if len(lines) > MAX_LINES else []
    return f"\n{indent}".join(shown + more)


def printable_json(document: object) -> str:
    """Return JSON of ASCII characters alone, indented; JSON itself leaves DEL as it is."""
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")


def _spell(character: str) -> str:
    is_plain = character.isprintable() and character not in _BLANK
    if is_plain and unicodedata.category(character) not in _MARKS:
        return character
    return character.encode("unicode_escape").decode("ascii")
