"""Describes a bug that spoiled one thing and not the run, in a line; its traceback is for whoever asks."""

from __future__ import annotations

import re
import traceback
from pathlib import PurePath
from typing import Final

from provision.base.printable import printable

_PACKAGE: Final = PurePath(__file__).parents[1]
_LONGEST_REASON: Final = 120
_LONGEST_READ: Final = 4096
# What an exception quotes may be a value of a node's file; the type of an object is not.
_QUOTED: Final = re.compile(
    r"""(?:(?<!\w)'(?:\\.|[^'\\])*(?:'|\Z)|"(?:\\.|[^"\\])*(?:"|\Z))(?P<type> object\b)?""", re.DOTALL
)
_REMEDY: Final = "run it again with --debug and report what it prints"


def describe_bug(error: BaseException, doing: str) -> str:
    """Return one line about an exception that nobody expected; ``doing`` is such as "planning n1".

    It ends in the status of a node or a stack.
    """
    return f"a bug while {doing}: {what_it_says(error)}{_place(error)}: {_REMEDY}"


def what_it_says(error: BaseException) -> str:
    """Return the kind of an exception and its words, without what it quotes: that is left to the traceback."""
    said = _QUOTED.sub(_unquoted, str(error)[:_LONGEST_READ])
    reason = printable(said, limit=_LONGEST_REASON)
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def name_bug(error: BaseException, doing: str) -> str:
    """Return as much as everybody may read, such as in the log of a pod: no word of the exception itself."""
    return f"a bug in {doing}: {type(error).__name__}{_place(error)}"


def _unquoted(found: re.Match[str]) -> str:
    return found.group() if found["type"] else "…"


def _place(error: BaseException) -> str:
    """Return the last line of our own that the exception came through, empty when there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = PurePath(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f" ({path.relative_to(_PACKAGE.parent)}, line {frame.lineno})"
    return ""
