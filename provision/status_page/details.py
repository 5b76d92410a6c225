"""Says what the page shows of one node that is looked at closely. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provision.printable import printable
from provision.rollout.model import Phase
from provision.rollout.status.estimate import ORDER
from provision.rollout.status.situations import GIVE_UP
from provision.status_page.rows import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.rollout.model import Record
    from provision.rollout.status.model import NodeStatus, Seen
    from provision.status_page.feed import LogLine


def node_document(node: NodeStatus, seen: Seen, log: Sequence[LogLine]) -> dict[str, Any]:
    """Return everything that is known of one node as JSON."""
    record, situation = node.record, node.situation
    todo = situation.todo.replace("NODE", node.name)
    return {
        "name": printable(node.name, limit=253),
        "state": situation.key,
        "reason": printable(node.reason),
        "todo": printable(todo),
        "giveUp": printable(GIVE_UP.replace("NODE", node.name)) if situation.needs_somebody and record else "",
        "origin": printable(record.origin) if record else "",
        "target": printable(record.target) if record else "",
        "began": seconds(record.began) if record else None,
        "since": seconds(node.since),
        "wave": printable(node.wave),
        "domain": printable(node.domain),
        "wasCordoned": record is not None and record.was_cordoned,
        "timeline": [] if record is None else timeline(record, round(seen.time.timestamp())),
        "log": [[line.time, line.state, line.reason] for line in reversed(log)],
    }


def timeline(record: Record, now: int) -> list[dict[str, Any]]:
    """Return the phases in their order: how long each took, which one the node is in, and which are still to come.

    ``took`` is None for a phase that nobody measured, such as one that an engine saw only the end of.
    """
    at = record.failed_in if record.phase is Phase.FAILED else record.phase
    phases = list(ORDER) if record.phase in ORDER or at is None or at in ORDER else [*ORDER, at]
    position = len(phases) if at is None or at.is_over else phases.index(at)
    entries = []
    for index, phase in enumerate(phases):
        took = record.took.get(phase)
        status = "done" if index < position else "ahead"
        if index == position:
            status = "failed" if record.phase is Phase.FAILED else "now"
            took = None if status == "failed" else max(0, now - int(record.since.timestamp()))
        entries.append({"phase": phase.value, "status": status, "took": took})
    return entries
