"""Renders findings as text for people: place, message, the line itself with a caret, hint."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.declaration.spec.text.findings import Finding, Place, Severity, in_reading_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WIDEST: Final = 100
_STYLES: Final = {Severity.ERROR: "1;31", Severity.WARNING: "1;33"}
_BOLD: Final = "1"
_DIM: Final = "2"
_HINT: Final = "1;36"


def render_findings(findings: Iterable[Finding], *, colour: bool = False) -> str:
    """Return all findings in reading order, an empty line between two of them."""
    return "\n\n".join(render_finding(each, colour=colour) for each in in_reading_order(findings))


def render_finding(finding: Finding, *, colour: bool = False) -> str:
    """Return one finding; its first line is what editors and terminals make clickable."""

    def paint(text: str, style: str) -> str:
        return f"\033[{style}m{text}\033[0m" if colour else text

    style = _STYLES[finding.severity]
    subject = f" {paint(printable(finding.key), _BOLD)}:" if finding.key else ""
    place, message = printable(str(finding.place)), printable(finding.message)
    lines = [f"{place}: {paint(f'{finding.severity.value}:', style)}{subject} {message}"]
    if finding.place.line and finding.place.text:
        number, gap = f"{finding.place.line:>5}", " " * 5
        text, pointer = _excerpt(finding.place)
        lines += [paint(f"{number} | ", _DIM) + text, paint(f"{gap} | ", _DIM) + paint(pointer, style)]
    if finding.nodes:
        lines.append(f"      = nodes: {printable(few(finding.nodes))}")
    if finding.hint:
        lines.append(f"      = {paint('hint:', _HINT)} {printable(finding.hint)}")
    return "\n".join(lines)


def _excerpt(place: Place) -> tuple[str, str]:
    """Return the line, cut around the place when it is long, and the carets below it."""
    first = max(0, place.column - 1 - _WIDEST // 2) if len(place.text) > _WIDEST else 0
    text = "".join(_visible(char) for char in place.text[first : first + _WIDEST])
    before = place.text[first : place.column - 1]
    width = max(1, min(place.width, len(place.text) - place.column + 1, first + _WIDEST - place.column + 1))
    return text, " " * _cells(before) + "^" * max(1, _cells(place.text[place.column - 1 : place.column - 1 + width]))


def _visible(char: str) -> str:
    """Return a character that takes its cells and does nothing else to the terminal: carets stand below the line."""
    return " " if char == "\t" else char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _cells(text: str) -> int:
    """Return how many terminal cells a text takes: East Asian wide characters take two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(char) in {"W", "F"} for char in text)
    return len(text) + wide - sum(bool(unicodedata.combining(char)) for char in text)


def few(names: Sequence[str], most: int = 8) -> str:
    """Return names as one text, the first ones and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
