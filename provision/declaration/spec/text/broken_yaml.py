"""Explains what PyYAML says about broken text: in words for people who do not write parsers, where they have to look.

A parser notices a mistake where it cannot go on, which is lines below the mistake or at the end of the text. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import yaml

_NO_MAPPING: Final = "mapping values are not allowed here"
_NO_COLON: Final = "could not find expected ':'"
_ENDS: Final = ("found unexpected end of stream", "found unexpected document separator")
_NO_START: Final = re.compile(r"found character '(?P<character>[^\\])' that cannot start any token")
_KEY: Final = re.compile(r":(\s|$)")
_NEITHER: Final = ("this line is neither a key nor a value", "write it as `key: value`")
_REWORDED: Final = {
    "found character '\\t' that cannot start any token": (
        "a tab stands where YAML wants spaces",
        "indent with spaces",
    ),
    _NO_MAPPING: (
        "a second ': ' in one value, or a line that is indented too far",
        "quote a value that contains ': '; align keys of one mapping",
    ),
    "expected <block end>, but found '<block mapping start>'": (
        "this line is indented differently from the keys above it",
        "align keys of one mapping",
    ),
    _NO_COLON: _NEITHER,
}


class Mistake(NamedTuple):
    """What is wrong with a text, and where; line and column count from 0."""

    line: int
    column: int
    message: str
    hint: str


def explain(error: yaml.MarkedYAMLError, lines: Sequence[str]) -> Mistake:
    """Return what an error of PyYAML means for the text with these lines; its place always has text."""
    problem, context = error.problem or "cannot be read", error.context or ""
    opened, noticed = error.context_mark, error.problem_mark or error.context_mark
    if noticed is None:
        return Mistake(0, 0, f"not YAML: {problem}", context)
    if opened and (problem in _ENDS or "<stream end>" in problem or _is_left(context, opened, noticed, lines)):
        what = "quotes" if "quoted" in context else "brackets"
        return Mistake(*_with_text(lines, opened), f"these {what} are not closed", f"close the {what} of this line")
    if opened and problem == _NO_COLON:
        return Mistake(opened.line, opened.column, *_NEITHER)
    if problem == _NO_MAPPING and (line := _line_without_key(lines, noticed.line)) is not None:
        return Mistake(line, _indent(lines[line]), *_NEITHER)
    return Mistake(*_with_text(lines, noticed), *_reword(problem, context, opened))


def _is_left(context: str, opened: yaml.Mark, noticed: yaml.Mark, lines: Sequence[str]) -> bool:
    """Tell whether brackets were left open: a line below begins with a key that is no further in than theirs."""
    if "flow" not in context or noticed.line <= opened.line or noticed.line >= len(lines):
        return False
    below = lines[noticed.line]
    return _KEY.search(below) is not None and _indent(below) <= _indent(lines[opened.line])


def _line_without_key(lines: Sequence[str], noticed: int) -> int | None:
    """Return the line above, if it has no key and stands at the level of the key where that was noticed."""
    for line in range(noticed - 1, -1, -1):
        text = lines[line].strip()
        if text and not text.startswith("#"):
            alone = not _KEY.search(text) and _indent(lines[line]) == _indent(lines[noticed])
            return line if alone else None
    return None


def _reword(problem: str, context: str, opened: yaml.Mark | None) -> tuple[str, str]:
    if problem in _REWORDED:
        return _REWORDED[problem]
    if (found := _NO_START.fullmatch(problem)) is not None:
        return f"a value cannot begin with {found['character']}", "quote the value"
    if opened and "flow" in context:
        hint = f"separate entries with commas, or close the brackets of line {opened.line + 1}"
        return f"not YAML: {problem}", hint
    return f"not YAML: {problem}", context


def _with_text(lines: Sequence[str], mark: yaml.Mark) -> tuple[int, int]:
    """Return the place of a mark, or the end of the last line before it that has text."""
    if mark.line < len(lines) and lines[mark.line].strip():
        return mark.line, mark.column
    for line in range(min(mark.line, len(lines)) - 1, -1, -1):
        if lines[line].strip():
            return line, len(lines[line].rstrip()) - 1
    return 0, 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
