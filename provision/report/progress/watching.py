"""Shows one picture after the other: redrawn on a terminal, in a log one below the other when something has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live

from provision.report.terminal import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType

Drawing = Sequence["RenderableType"]
Picture = tuple[object, Drawing]  # what it says, and what it looks like


def watch(console: Console, pictures: Iterable[Picture]) -> None:
    """Show each picture until the next one; the last one stays. A log gets only those that say something new."""
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for _said, picture in pictures:
                live.update(Group(*picture), refresh=True)
        return
    before: object = None
    for said, picture in pictures:
        if said != before:
            show(console, [""] if before is not None else [])
            show(console, picture)
            before = said
