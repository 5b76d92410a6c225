"""Tells whether a file that grapnel wrote for an engine was edited since, by its mark. Pure.

The mark: contract `docs/contracts/declared`.
"""

from __future__ import annotations

import hashlib
import re

_MARK = re.compile(rb"^# managed by grapnel.*\n# sha256 of the rest: ([0-9a-f]{64})\n", re.MULTILINE)


def is_edited(content: bytes, mark: str) -> bool:
    """Tell whether `grapnel apply` takes a file for edited; `mark` says where the mark stands, "start" or "end".

    Above one that stands before the end, others write what they like. A file without a mark is somebody else's: it is
    kept, and overwritten.
    """
    found = _MARK.search(content)
    if found is None:
        return False
    is_moved = mark == "start" and found.start() > 0
    return is_moved or found.group(1).decode() != hashlib.sha256(content[found.end() :]).hexdigest()
