"""Renders past runs: as a table, and what they left behind, below how the fleet stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

from provision.base.printable import brief
from provision.declaration.fleet.series import in_series
from provision.report.console import Text
from provision.report.runs.model import State
from provision.report.terminal import CELL_WIDTH, age, count, duration, hanging, names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from provision.report.runs.history import History
    from provision.report.runs.model import RunReport

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


def render_history(history: History, nodes: Collection[str], now: datetime) -> Iterator[RenderableType]:
    """Yield the last run, and which of ``nodes`` were as declared when they were last changed."""
    last = history.last
    if last is None:
        return
    ago = age((now - last.began).total_seconds())
    counts = ", ".join(f"{number} {result}" for result, number in last.counts.items())
    about = Text.assemble(
        f"{last.verb} by {last.by}, {ago} ago: ",
        (last.state.value, STATE_STYLES[last.state]),
        f" ({counts or last.error or 'no node'})",
    )
    yield ""
    yield hanging(Text("last run: ", "bold"), about)
    yield hanging(2, Text(f"`grapnel report {last.run}` says what happened", "dim"))
    known = {name: one for name, one in history.nodes.items() if name in nodes}
    good = [name for name in history.as_declared if name in known]
    yield hanging(Text("last applied: ", "bold"), Text(f"{len(good)} of {count(len(nodes), 'node')} as declared then"))
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, one in known.items():
        if name not in good:
            since = age((now - one.time).total_seconds())
            alike.setdefault((one.verb, one.result, since, one.remedy, one.command), []).append(name)
    for (verb, result, since, remedy, command), those in alike.items():
        yield hanging(2, Text.assemble((names(in_series(those)), "bold cyan"), f"  {result} by {verb}, {since} ago"))
        if remedy:
            yield hanging(4, Text.assemble(("do: ", "bold green"), brief(remedy)))
        if command:
            yield hanging(4, Text(f"`{command}`"))
    if never := [name for name in nodes if name not in known]:
        yield hanging(2, Text.assemble((names(in_series(never)), "bold cyan"), "  in no run that is kept"))
