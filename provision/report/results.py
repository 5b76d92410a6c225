"""What became of each node, as a table, with the output of what failed below it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from provision.apply.model import NodeResult, Status
from provision.report.terminal import STATUS_STYLES, count, duration, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType


def render_results(results: Sequence[NodeResult], elapsed_s: float) -> Iterator[RenderableType]:
    """Yield the table, the tails of failed tasks, and a line that counts."""
    yield _table(results)
    for result in results:
        if result.failure is not None and result.failure.tail:
            yield ""
            yield Text(f"{result.node}: output of '{result.failure.task}'", "bold")
            yield Padding(Text("\n".join(result.failure.tail), "dim"), (0, 0, 0, 2))
    yield ""
    yield Text(f"{summary(results)} in {duration(elapsed_s)}", "bold")


def summary(results: Sequence[NodeResult]) -> str:
    """Return ``3 nodes: 2 converged, 1 failed``."""
    counts = Counter(result.status for result in results)
    parts = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    return f"{count(len(results), 'node')}: {', '.join(parts)}"


def _table(results: Sequence[NodeResult]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("node", overflow="fold", style="bold cyan")
    table.add_column("result", no_wrap=True)
    table.add_column("changes", no_wrap=True, justify="right")
    table.add_column("", overflow="fold")
    unchanged = [result.node for result in results if result.status is Status.UNCHANGED]
    for result in results:
        if result.status is not Status.UNCHANGED:
            table.add_row(result.node, _status(result.status), _changes(result), _detail(result))
    if unchanged:
        table.add_row(names(unchanged), _status(Status.UNCHANGED), "", "")
    return table


def _status(status: Status) -> Text:
    return Text(status.value, STATUS_STYLES[status])


def _changes(result: NodeResult) -> str:
    return str(result.changes) if result.passes else ""


def _detail(result: NodeResult) -> Text:
    if result.failure is None:
        return Text(f"in {result.passes} passes" if result.passes > 1 else "", "dim")
    task = f"{result.failure.task}: " if result.failure.task else ""
    return Text.assemble((task, "bold"), result.failure.message)
