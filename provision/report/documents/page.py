"""Renders a page of the documents for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markdown import Markdown

if TYPE_CHECKING:
    from rich.console import RenderableType


def render_page(markdown: str) -> RenderableType:
    """Return a page as it is read: headings, tables and code, links by their words."""
    return Markdown(markdown, hyperlinks=False)
