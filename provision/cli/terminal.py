"""How failures and findings look on a terminal: plain words, colour only where a person is watching."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from provision.errors import DeclarationError, GrapnelError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.spec.findings import Finding


def wants_colour(stream: TextIO) -> bool:
    """Return whether a person who wants colour is watching (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, colour: bool) -> str:
    """Return the text in an ECMA-48 style ("1;31" is bold red), or as it is."""
    return f"\033[{style}m{text}\033[0m" if colour else text


def print_error(error: GrapnelError) -> None:
    """Print an expected failure: its findings, its message and its hint."""
    colour = wants_colour(sys.stderr)
    if isinstance(error, DeclarationError):
        print_findings(error.findings)
    print(f"grapnel: {paint('error:', '1;31', colour=colour)} {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  {paint('hint:', '1;36', colour=colour)} {error.hint}", file=sys.stderr)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings with the source line and a caret each, and an empty line after the last one."""
    from provision.spec.excerpt import render_findings  # noqa: PLC0415 - start-up time

    text = render_findings(findings, colour=wants_colour(sys.stderr))
    if text:
        print(f"{text}\n", file=sys.stderr)
