"""Says what the page shows of nodes' machines: the rows that `grapnel status` has, and all of one node. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from provision.base.printable import printable
from provision.declaration.fleet.series import in_series
from provision.declaration.spec.text.excerpt import few
from provision.rollout.status import words
from provision.rollout.status.words import facts_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from provision.rollout.status.model import NodeStatus
    from provision.rollout.status.words import Last

ROWS: Final = 40
HEADS: Final = ("nodes", *words.HEADS, "last run")


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes of which the same is known: names and cells in the order of `HEADS`; ``ended`` is that of the last run."""

    texts: tuple[str, ...]
    ended: int | None
    needs_somebody: bool


@dataclass(frozen=True, slots=True)
class Machines:
    """All rows but the last ``more`` nodes, and sentences about what is not known."""

    rows: tuple[Row, ...] = ()
    more: int = 0
    unknown: tuple[str, ...] = ()


def machines_of(nodes: Sequence[NodeStatus], last: Mapping[str, Last]) -> Machines:
    """Return the rows of nodes, those that need somebody first."""
    rows, unknown = rows_of(nodes, last)
    notes = []
    for each in unknown[:ROWS]:
        of = "" if len(each.nodes) == len(nodes) else f" of {few(in_series(each.nodes))}"
        notes.append(printable(f"Not known: {each.what}{of}: {each.how}"))
    return Machines(
        rows=tuple(
            Row(
                texts=tuple(map(printable, (few(in_series(row.nodes)), *row.texts, _words(row.last)))),
                ended=None if row.last is None else seconds(row.last.time),
                needs_somebody=row.needs_somebody,
            )
            for row in rows[:ROWS]
        ),
        more=sum(len(row.nodes) for row in rows[ROWS:]),
        unknown=tuple(notes),
    )


def machines_document(machines: Machines) -> dict[str, Any]:
    """Return the rows as JSON."""
    return {
        "heads": list(HEADS),
        "rows": [[list(row.texts), row.ended, row.needs_somebody] for row in machines.rows],
        "more": machines.more,
        "unknown": list(machines.unknown),
    }


def machine_document(node: NodeStatus, last: Last | None) -> list[list[Any]]:
    """Return everything that is known of one node's machine: a label, a text, and when that was said."""
    facts = [[label, printable(text), seconds(said)] for label, text, said in facts_of(node, last)]
    return [*facts, ["last run", printable(_words(last)), None if last is None else seconds(last.time)]]


def _words(last: Last | None) -> str:
    return "none that is kept" if last is None else last.words


def seconds(moment: datetime | None) -> int | None:
    """Return a time as whole seconds since 1970."""
    return None if moment is None else int(moment.timestamp())
