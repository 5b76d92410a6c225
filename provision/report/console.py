"""Makes the console and its text: nothing reaches the terminal but visible characters, line ends and rich's own styles.

Everything that is shown goes through `make_console`, and every renderable through its `render`: a value that somebody
forgot to clean is cleaned there, too. `Text` and `render_str` do it earlier, before anything is measured, so that
columns keep their widths; one value is one line.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, TextIO

import rich.console
import rich.text
from rich.segment import Segment
from rich.table import Table

from provision.base.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType
    from rich.style import Style


_UNBOUNDED: Final = 100_000  # columns; a value is cut at 2000 characters long before


class Text(rich.text.Text):
    """Text of one line; what is not printable in it is spelled out."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(printable(text), style, **options)

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> Text:
        """Add text with a style."""
        super().append(printable(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: Any, **options: Any) -> Text:
        """Return a text of parts: each a string, a text, or a string with its style."""
        text = cls(**options)
        for part in parts:
            text.append(*part if isinstance(part, tuple) else (part,))
        return text


class Console(rich.console.Console):
    """A console whose output holds no control sequence but those of styles and of rich's own live display.

    Where nothing says how wide it is (`is_unbounded`), no line is wrapped and no cell cut: whatever reads a pipe or a
    file looks for whole words.
    """

    is_unbounded = False

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """Return the text of a value that is given as it is."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable; their styles become escape sequences after this."""
        if self.is_unbounded and isinstance(renderable, Table):
            for column in renderable.columns:
                column.max_width = None
            renderable.expand = False
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_clean(segment.text), segment.style)


def _clean(text: str) -> str:
    """Return the text of a segment, which may end lines; its length was bounded where it came from."""
    return "\n".join(printable(line, limit=10 * len(line)) for line in text.split("\n"))


def make_console(stream: TextIO, *, width: int | None = None) -> Console:
    """Return a console; colour follows the stream and NO_COLOR, the width the terminal, or else COLUMNS.

    Without any of them lines are as long as they are.
    """
    is_unbounded = width is None and not stream.isatty() and not os.environ.get("COLUMNS")
    console = Console(
        file=stream, width=_UNBOUNDED if is_unbounded else width, highlight=False, markup=False, emoji=False
    )
    console.is_unbounded = is_unbounded
    return console
