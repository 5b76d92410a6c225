"""Renders what is known of nodes' machines: a table in which equal nodes are one row, and all of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

from provision.fleet.series import in_series
from provision.report.console import Text
from provision.report.terminal import age, count, hanging, names
from provision.rollout.status.words import NAMES, NOT_KNOWN, cells_of, ways_to_know

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from provision.rollout.status.model import NodeStatus
    from provision.rollout.status.reported import Reported
    from provision.rollout.status.words import Cells
    from provision.runs.history import History, LastResult

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
    groups: dict[tuple[bool, Cells, str], list[str]] = {}
    notes: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        last = "" if history is None else _last_words(history.nodes.get(node.name), now)
        groups.setdefault((not node.situation.needs_somebody, cells_of(node), last), []).append(node.name)
        for note in ways_to_know(node):
            notes.setdefault(note, []).append(node.name)
    rows = sorted(groups.items(), key=lambda one: one[0][0])
    yield ""
    yield _table(rows[:ROWS_SHOWN])
    if rest := sum(len(those) for _key, those in rows[ROWS_SHOWN:]):
        yield hanging(2, Text(f"and {count(rest, 'node')} more of which something else is so (`--json`)", "dim"))
    for (what, how), those in list(notes.items())[:ROWS_SHOWN]:
        of = "" if len(those) == len(nodes) else f" of {names(in_series(those))}"
        yield hanging(Text("not known: ", "dim"), Text(f"{what}{of}: {how}", "dim"))


def _table(rows: Sequence[tuple[tuple[bool, Cells, str], list[str]]]) -> Table:
    """Return the table without the columns that say nothing of any node."""
    lines = [(*_texts(cells), last) for (_is_well, cells, last), _those in rows]
    heads = (*NAMES, "last run")
    told = [at for at in range(len(heads)) if any(line[at] not in (NOT_KNOWN, "") for line in lines)]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("nodes", *(heads[at] for at in told)):
        table.add_column(head, overflow="fold", min_width=_MIN_WIDTHS.get(head))
    for line, (_key, those) in zip(lines, rows, strict=True):
        table.add_row(Text(names(in_series(those)), "bold cyan"), *(_cell(line[at]) for at in told))
    return table


def _texts(cells: Cells) -> tuple[str, ...]:
    return cells.driver, cells.module, cells.engine, cells.daemon, cells.gpus, cells.drift


def _cell(text: str) -> Text:
    return Text(text, _STYLES.get(text, ""))


def _last_words(last: LastResult | None, now: datetime) -> str:
    if last is None:
        return _NEVER
    return f"{last.verb}: {last.result}, {age((now - last.time).total_seconds())} ago"


def machine_facts(node: NodeStatus, history: History | None, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield everything that is known of one node's machine, as labels and texts."""
    cells, reported = cells_of(node), node.reported
    if reported is not None:
        yield "kubelet", _kubelet(reported, now)
    for name, text in zip(NAMES, _texts(cells), strict=True):
        yield name, f"{text}{_behind(name, reported, now)}"
    last = None if history is None else history.nodes.get(node.name)
    if history is not None:
        yield "last run", _last_words(last, now) + ("" if last is None else f" (`grapnel report {last.run}`)")
    for what, how in ways_to_know(node):
        yield "not known", f"{what}: {how}"


def _kubelet(reported: Reported, now: datetime) -> str:
    heard = "" if reported.heard is None else f", heard of {age((now - reported.heard).total_seconds())} ago"
    return f"{reported.kubelet or 'version not known'}, {'ready' if reported.is_ready else 'not ready'}{heard}"


def _behind(name: str, reported: Reported | None, now: datetime) -> str:
    """Return what there is to say of one of the facts beside its cell."""
    if reported is None:
        return ""
    if name == "daemon" and reported.said is not None:
        return f", heard of {age((now - reported.said).total_seconds())} ago"
    more = {"driver": reported.driver_trouble, "GPUs": reported.gpu_trouble, "drift": reported.drift_words}.get(
        name, ""
    )
    return f": {more}" if more else ""
