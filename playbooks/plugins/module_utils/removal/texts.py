"""Takes grapnel's changes out of a text that somebody else has changed as well. Pure.

Three texts are known of a file: before grapnel, as grapnel wrote it, and as it is now. What has to be found is the
fourth: with the other person's edits, without grapnel's. Lines that only one side has changed are certain. For JSON,
which programs like to lay out their own way, the trees are compared instead. What both have changed stays, and is said.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText

# Files that people and other programs edit as well; every other file that was not there before is grapnel's alone.
SHARED = tuple(each.main for each in ENGINES.values() if each.is_shared)
_NEW = object()
_VERSION = re.compile(r"^\s*version\s*=", re.MULTILINE)


@dataclass(frozen=True)
class Taken:
    """What is left of a file; None for no file. Not ``is_whole``: it may still hold something of grapnel's."""

    text: FileText | None
    is_whole: bool = True


def take_out(path: str, before: FileText | None, written: FileText | None, present: FileText | None) -> Taken:
    """Return a file as it would be had grapnel never changed it."""
    if present is None or (before is None and path not in SHARED):
        return Taken(None)
    if written is None:
        return Taken(present)
    old, new = "" if before is None else before.content, written.content
    if path.endswith(".json"):
        text = _from_json(old, new, present.content)
        if text is not None and before is None and not text.strip("{} \n"):
            return Taken(None)
    else:
        text = _from_lines(old, new, present.content)
    return Taken(present, is_whole=False) if text is None else Taken(replace(present, content=text))


def _from_lines(before: str, written: str, present: str) -> str | None:
    added = {line.strip() for line in written.splitlines()} - {line.strip() for line in before.splitlines()}
    if not added & {line.strip() for line in present.splitlines()}:
        return present  # somebody has written the whole file again
    text = reverse_lines(before, written, present)
    has_lost_version = text is not None and _VERSION.search(present) and not _VERSION.search(text)
    # Without its version the rest would mean something else to the engine.
    return None if has_lost_version and text and text.strip() else text


def reverse_lines(before: str, written: str, present: str) -> str | None:
    """Return ``present`` without what leads from ``before`` to ``written``; None where the same lines were edited."""
    old, new, now = (text.splitlines(keepends=True) for text in (before, written, present))
    kept = [block for block in _matcher(new, now).get_matching_blocks() if block.size]
    result, done = [], 0
    for tag, start, end, first, last in _matcher(new, old).get_opcodes():
        if tag == "equal":
            continue
        block = next((one for one in kept if one.a <= start and end <= one.a + one.size), None)
        if block is None:
            return None
        place = block.b + start - block.a
        result += [*now[done:place], *old[first:last]]
        done = place + end - start
    return "".join([*result, *now[done:]])


def _matcher(first: list[str], second: list[str]) -> SequenceMatcher[str]:
    return SequenceMatcher(None, first, second, autojunk=False)


def _from_json(before: str, written: str, present: str) -> str | None:
    try:
        old, new, now = (json.loads(text) if text.strip() else {} for text in (before, written, present))
    except (ValueError, RecursionError):
        return None
    tree = _without(old, new, now)
    by_lines = reverse_lines(before, written, present)
    try:
        if by_lines is not None and json.loads(by_lines) == tree:
            return by_lines
    except ValueError:
        pass
    return present if tree == now else json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def _without(old: Any, new: Any, now: Any) -> Any:
    """Return ``now`` with every value of ``new`` that is still there as it is in ``old``."""
    if now == new:
        return old
    if not (isinstance(new, dict) and isinstance(now, dict)):
        return now
    base = old if isinstance(old, dict) else {}
    result = {}
    for key in now:
        value = _without(base.get(key, _NEW), new[key], now[key]) if key in new else now[key]
        is_emptied = value == {} and key not in base and now[key] != {}
        if value is not _NEW and not is_emptied:
            result[key] = value
    missing = {key: value for key, value in base.items() if key not in new and key not in now}
    return {**result, **missing}
