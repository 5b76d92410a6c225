"""Finds files of an engine that grapnel wrote and somebody edited since: it stops there, or keeps what they wrote.

What nobody edited is overwritten whenever it should read otherwise, and so is one in which only comments differ.
"""

from __future__ import annotations

import hashlib
import posixpath
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from provision.declaration.spec.model import HandEdits
from provision.planning.engines.files.engine_file import shown
from provision.planning.engines.files.mark import Origin, origin_of
from provision.planning.node_plan import EDITED, HAND_EDITED, Action, FileContent, Item, Problem, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.fleet.facts.node import FileState, NodeFacts
    from provision.declaration.spec.model import StackSpec

_MOST_NAMES = 3
_SUM_DIGITS = 8


@dataclass(frozen=True)
class Kept:
    """A text that is kept before the file that holds it is overwritten, or why nothing may be changed.

    ``path`` and ``difference`` are of a file of ours that somebody edited, empty for any other.
    """

    file: FileContent | None = None
    item: Item | None = None
    problem: Problem | None = None
    path: str = ""
    difference: str = ""

    def told_in(self, writes: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return the writes of which that of the edited file says what was edited."""
        reason = f"{self.path} was edited after grapnel wrote it: {self.difference}"
        return tuple(
            msgspec.structs.replace(item, from_=EDITED, reason=reason) if item.target == self.path else item
            for item in writes
        )


def keep_edits(
    facts: NodeFacts, wanted: FileContent, answer: HandEdits, folder: str, *, is_block: bool = False
) -> Kept:
    """Return what becomes of the text that a file of ours holds now.

    ``folder`` is where an edited text is kept: one of which the engine does not read whatever lies there. With
    ``is_block`` only the end of the file is ours.
    """
    present = facts.file(wanted.path)
    if present is None or not (present.content or "").strip() or _means_the_same(present.content, wanted.content):
        return Kept()
    origin = origin_of(present.content or "", is_block=is_block)
    if origin is Origin.OURS:
        return Kept()
    place = _place_of(wanted.path, present, folder)
    if origin is Origin.EDITED and answer is HandEdits.REFUSE:
        return Kept(problem=_problem(facts, wanted, present.content or "", place))
    what = "what was edited in" if origin is Origin.EDITED else "what somebody else wrote to"
    item = Item(role=Role.RUNTIME, action=Action.KEEP, target=place, reason=f"keeps {what} {wanted.path}")
    file = FileContent(place, present.content or "", f"0{present.mode[-3:]}")
    if origin is not Origin.EDITED:
        return Kept(file, item)
    return Kept(file, item, path=wanted.path, difference=_difference(present.content or "", wanted.content))


def overwrite_edits(stack: StackSpec) -> StackSpec:
    """Return a declaration under which edited files are overwritten: for one run, when a person asks for it."""
    return msgspec.structs.replace(
        stack, runtime=msgspec.structs.replace(stack.runtime, hand_edits=HandEdits.OVERWRITE)
    )


def _place_of(path: str, present: FileState, folder: str) -> str:
    """Return where a text is kept: every one under a name of its own, which no engine's pattern matches."""
    digest = hashlib.sha256((present.content or "").encode("utf-8", "surrogateescape")).hexdigest()
    return f"{folder}/{posixpath.basename(path)}.edited-{digest[:_SUM_DIGITS]}"


def _problem(facts: NodeFacts, wanted: FileContent, present: str, place: str) -> Problem:
    return Problem(
        code=HAND_EDITED,
        message=f"{wanted.path} on {facts.node.hostname} was edited after grapnel wrote it: "
        f"{_difference(present, wanted.content)}",
        hint="put what you need into a file of your own and take this one away; or overwrite it, which keeps it as "
        f"{place}: grapnel apply --force, with playbooks -e grapnel_force=true",
    )


def _means_the_same(present: str | None, wanted: str) -> bool:
    if present == wanted:
        return True
    values = _values(present or "")
    return values is not None and values == _values(wanted)


def _difference(present: str, wanted: str) -> str:
    """Say which settings differ, or the first line where a text cannot be read; values may be passwords."""
    is_value, should_be = _values(present), _values(wanted)
    if is_value is None or should_be is None:
        return f"it differs from line {_first_line(present, wanted)} on"
    here, there = dict(_settings(is_value)), dict(_settings(should_be))
    told = [
        f"{shown('.'.join(keys))} is {'changed' if keys in here and keys in there else _side(here, keys)}"
        for keys in sorted({*here, *there})
        if here.get(keys) != there.get(keys)
    ]
    more = f" and {len(told) - _MOST_NAMES} more" if len(told) > _MOST_NAMES else ""
    return ", ".join(told[:_MOST_NAMES]) + more


def _side(here: Mapping[tuple[str, ...], Any], keys: tuple[str, ...]) -> str:
    return "added" if keys in here else "missing"


def _values(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _settings(tree: Mapping[str, Any], keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _settings(value, (*keys, key))
        else:
            yield (*keys, key), value


def _first_line(present: str, wanted: str) -> int:
    """Return the first line of the rest that differs; the mark of both has another checksum, and counts as a line."""
    lines = [[line for line in text.splitlines() if not line.startswith("# sha256")] for text in (present, wanted)]
    same = next((n for n, (a, b) in enumerate(zip(*lines, strict=False)) if a != b), min(map(len, lines)))
    return same + 1 + int(same > 0)
