"""Renders what past runs left behind, below how the fleet stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.base.printable import brief
from provision.fleet.series import in_series
from provision.report.console import Text
from provision.report.runs import STATE_STYLES
from provision.report.terminal import age, count, hanging, names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from rich.console import RenderableType

    from provision.runs.history import History


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
