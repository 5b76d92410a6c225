"""Renders past runs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

from provision.report.console import Text
from provision.report.terminal import CELL_WIDTH, duration
from provision.runs.model import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from provision.runs.model import RunReport

STATE_STYLES: Final = {
    State.RUNNING: "bold cyan",
    State.SUCCEEDED: "green",
    State.FAILED: "bold red",
    State.KILLED: "bold red",
    State.INTERRUPTED: "bold yellow",
    State.DECLINED: "dim",
}


def render_runs(reports: Sequence[RunReport]) -> Iterator[RenderableType]:
    """Yield a table, the newest first."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("run", no_wrap=True, style="bold cyan")
    table.add_column("state", no_wrap=True)
    table.add_column("took", no_wrap=True, justify="right")
    table.add_column("by", overflow="fold", max_width=CELL_WIDTH)
    table.add_column("nodes", overflow="fold")
    for one in reports:
        counts = ", ".join(f"{number} {result}" for result, number in one.counts.items())
        state = Text(one.state.value, STATE_STYLES[one.state])
        table.add_row(one.run, state, duration(one.seconds), Text(one.by), Text(one.error or counts))
    yield table
