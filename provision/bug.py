"""Describes a bug that spoiled one thing and not the run, in a line; its traceback is for whoever asks."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import Final

from provision.printable import printable

_PACKAGE: Final = PurePath(__file__).parent
_LONGEST_REASON: Final = 120
_REMEDY: Final = "run it again with --debug and report what it prints"


def describe_bug(error: BaseException, doing: str) -> str:
    """Return one line about an exception that nobody expected; ``doing`` is such as "planning n1"."""
    reason = printable(str(error), limit=_LONGEST_REASON)
    what = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    return f"a bug while {doing}: {what}{_place(error)}: {_REMEDY}"


def _place(error: BaseException) -> str:
    """Return the last line of our own that the exception came through, empty when there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = PurePath(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f" ({path.relative_to(_PACKAGE.parent)}, line {frame.lineno})"
    return ""
