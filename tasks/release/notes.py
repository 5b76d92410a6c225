"""Takes the section of a release out of the changelog. Pure."""

from __future__ import annotations

import re


class NotesError(Exception):
    """The changelog does not say what changed."""


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a version; raises `NotesError` when there is none, or nothing in it."""
    sections = re.split(r"(?m)^## ", changelog)[1:]
    for section in sections:
        heading, _newline, text = section.partition("\n")
        if heading.split()[0].strip("[]") == version and text.strip():
            return f"# grapnel {version}\n\n{text.strip()}\n"
    raise NotesError(f"CHANGELOG.md has no section `## {version}`, or nothing in it: say what changed, for operators")
