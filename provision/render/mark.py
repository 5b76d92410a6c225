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


def origin_of(text: str) -> Origin:
    """Tell who has written a text."""
    mark = _MARK.search(text)
    if mark is None:
        return Origin.OURS if _MARK_OF_BEFORE.search(text) else Origin.FOREIGN
    is_untouched = not mark.start() and mark.group(1) == _sum_of(text[mark.end() :])
    return Origin.OURS if is_untouched else Origin.EDITED


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
