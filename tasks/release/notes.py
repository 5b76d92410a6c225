"""Takes the section of a release out of the changelog, and links that lead nowhere out of a page. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import Final

_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


class NotesError(Exception):
    """The changelog does not say what changed."""


def notes_of(changelog: str, version: str) -> str:
    """Return the section of a version; raises `NotesError` when there is none, or nothing in it."""
    sections = re.split(r"(?m)^## ", changelog)[1:]
    for section in sections:
        heading, _newline, text = section.partition("\n")
        if heading.split()[0].strip("[]") == version and text.strip():
            return standing_alone(f"# grapnel {version}\n\n{text.strip()}\n", "")
    raise NotesError(f"CHANGELOG.md has no section `## {version}`, or nothing in it: say what changed, for operators")


def standing_alone(page: str, folder: str) -> str:
    """Return a page of a folder of the repository as it is downloaded by itself: files are named, and no links.

    What lies in that folder comes with the page, where there is one.
    """

    def named(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[0] if folder and path.startswith(f"{folder}/") else f"{link[1]} (`{path}`)"

    return _LINK.sub(named, page)
