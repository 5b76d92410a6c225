"""Renders what is known of nodes' machines: a table in which equal nodes are one row, and all of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

from provision.declaration.fleet.series import in_series
from provision.report.console import Text
from provision.report.runs.history import last_words
from provision.report.terminal import age, count, hanging, names
from provision.rollout.status.words import HEADS, NOT_KNOWN, facts_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from provision.report.runs.history import History
    from provision.rollout.status.model import NodeStatus
    from provision.rollout.status.words import MachineRow

ROWS_SHOWN: Final = 40  # of nodes that all have something else
_NEVER: Final = "none that is kept"
_MIN_WIDTHS: Final = {"driver": 10, "engine": 10, "last run": 10}  # of a version, a name: in a narrow terminal, too
_STYLES: Final = {
    "silent": "bold red",
    "does not answer": "bold red",
    "none offered": "bold red",
    "drifted": "bold yellow",
    NOT_KNOWN: "dim",
    "none": "green",
    "reports": "green",
}


def render_nodes(nodes: Sequence[NodeStatus], history: History | None, now: datetime) -> Iterator[RenderableType]:
    """Yield the table, what needs somebody first, and what would make known what is not."""
    if not nodes:
        return
    rows, unknown = rows_of(nodes, last_words(history))
    yield ""
    yield _table(rows[:ROWS_SHOWN], now, knows_runs=history is not None)
    if rest := sum(len(row.nodes) for row in rows[ROWS_SHOWN:]):
        yield hanging(2, Text(f"and {count(rest, 'node')} more of which something else is so (`--json`)", "dim"))
    for each in unknown[:ROWS_SHOWN]:
        of = "" if len(each.nodes) == len(nodes) else f" of {names(in_series(each.nodes))}"
        yield hanging(Text("not known: ", "dim"), Text(f"{each.what}{of}: {each.how}", "dim"))


def machine_facts(node: NodeStatus, history: History | None, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield everything that is known of one node's machine, as labels and texts."""
    last = last_words(history).get(node.name)
    for label, text, said in facts_of(node, last):
        yield label, text if said is None else f"{text}, heard of {_ago(said, now)}"
    if history is not None:
        run = history.nodes.get(node.name)
        words = _NEVER if last is None else f"{last.words}, {_ago(last.time, now)}"
        yield "last run", words if run is None else f"{words} (`grapnel report {run.run}`)"


def _table(rows: Sequence[MachineRow], now: datetime, *, knows_runs: bool) -> Table:
    """Return the table without the columns that say nothing of any node."""
    lines = [(*row.texts, _last(row, now) if knows_runs else NOT_KNOWN) for row in rows]
    heads = (*HEADS, "last run")
    told = [at for at in range(len(heads)) if any(line[at] != NOT_KNOWN for line in lines)]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("nodes", *(heads[at] for at in told)):
        table.add_column(head, overflow="fold", min_width=_MIN_WIDTHS.get(head))
    for line, row in zip(lines, rows, strict=True):
        cells = (Text(line[at], _STYLES.get(line[at], "")) for at in told)
        table.add_row(Text(names(in_series(row.nodes)), "bold cyan"), *cells)
    return table


def _last(row: MachineRow, now: datetime) -> str:
    return _NEVER if row.last is None else f"{row.last.words}, {_ago(row.last.time, now)}"


def _ago(time: datetime, now: datetime) -> str:
    return f"{age((now - time).total_seconds())} ago"
