"""Marks the files that grapnel writes for an engine, so that a later run can tell whether somebody has edited one.

The mark holds a checksum of all that follows it. Releases before it wrote a mark without one: such a file counts as
untouched, as its own first line says that changes are put back.
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum

_FIRST = "# managed by grapnel"
_HEAD = f"{_FIRST}: apply stops where this was edited by hand (runtime.handEdits)\n# sha256 of the rest: "
_MARK = re.compile(rf"^{_FIRST}.*\n# sha256 of the rest: ([0-9a-f]{{64}})\n", re.MULTILINE)
_MARK_OF_BEFORE = re.compile(rf"^{_FIRST}", re.MULTILINE)


class Origin(Enum):
    """Who has written a text that stands at a place of ours."""

    OURS = "ours"
    EDITED = "edited"
    FOREIGN = "foreign"


def marked(text: str) -> str:
    """Return a text below its mark."""
    return f"{_HEAD}{_sum_of(text)}\n{text}"


def has_mark(text: str) -> bool:
    """Tell whether a text, or its end, was written by grapnel."""
    return _MARK.search(text) is not None


def without_block(text: str) -> str:
    """Return what stands above our part of a text, the whole where it has none."""
    mark = _MARK.search(text)
    return text if mark is None else text[: mark.start()]


def origin_of(text: str, *, is_block: bool = False) -> Origin:
    """Tell who has written a text; with ``is_block`` it is that of the part from our mark on, below others' lines."""
    mark = _MARK.search(text)
    if mark is None:
        return Origin.OURS if is_block or _MARK_OF_BEFORE.search(text) else Origin.FOREIGN
    is_untouched = (is_block or not mark.start()) and mark.group(1) == _sum_of(text[mark.end() :])
    return Origin.OURS if is_untouched else Origin.EDITED


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
