"""Says what the page shows of one node that is looked at closely. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from provision.base.printable import printable
from provision.report.runs.remedies import BARE
from provision.report.status_page.machines import machine_document, seconds
from provision.rollout.model import Phase
from provision.rollout.status.advice import led
from provision.rollout.status.situations import GIVE_UP

if TYPE_CHECKING:
    from provision.report.runs.remedies import Invocation
    from provision.report.status_page.feed import Log
    from provision.rollout.model import Record
    from provision.rollout.status.model import NodeStatus, Seen
    from provision.rollout.status.words import Last


_UNDER_WAY: Final = tuple(phase for phase in Phase if not phase.is_over)
_ASIDE: Final = (Phase.JOBS, Phase.ROLLBACK)  # phases that not every node goes through


def node_document(
    node: NodeStatus, seen: Seen, log: Log, invocation: Invocation = BARE, last: Last | None = None
) -> dict[str, Any]:
    """Return everything that is known of one node as JSON."""
    record, situation = node.record, led(node.situation) if seen.is_led else node.situation
    todo = invocation.complete(situation.todo, [node.name], is_whole=bool(node.domain))
    give_up = invocation.complete(GIVE_UP, [node.name])
    return {
        "name": printable(node.name, limit=253),
        "state": situation.key,
        "reason": printable(node.reason),
        "todo": printable(todo),
        "giveUp": printable(give_up) if situation.needs_somebody and record else "",
        "origin": printable(record.origin) if record else "",
        "target": printable(record.target) if record else "",
        "began": seconds(record.began) if record else None,
        "since": seconds(node.since),
        "wave": printable(node.wave),
        "domain": printable(node.domain),
        "wasCordoned": record is not None and record.was_cordoned,
        "machine": machine_document(node, last),
        "timeline": [] if record is None else timeline(record, round(seen.time.timestamp())),
        "log": [[line.time, line.state, line.reason] for line in reversed(log.lines)],
        "logBegan": log.began,
    }


def timeline(record: Record, now: int) -> list[dict[str, Any]]:
    """Return the phases in their order: how long each took, which one the node is in, and which are still to come.

    ``took`` is None for a phase that nobody measured, such as one that an engine saw only the end of. Phases that not
    every node goes through are there only for one that does.
    """
    is_failed = record.phase is Phase.FAILED
    at = record.failed_in if is_failed else record.phase
    is_back = at in (Phase.ROLLBACK, Phase.RETURNED)  # what came before is what was measured
    phases = [phase for phase in _UNDER_WAY if phase in record.took or phase is at or not (is_back or phase in _ASIDE)]
    position = phases.index(at) if at in phases else len(phases)
    is_known = at in phases or record.phase is Phase.DONE
    entries: list[dict[str, Any]] = []
    for index, phase in enumerate(phases):
        took = record.took.get(phase)
        if index == position:
            status = "failed" if is_failed else "now"
            took = None if is_failed else max(0, now - int(record.since.timestamp()))
        elif took is not None or (index < position and is_known):
            status = "done" if index < position else "ahead"
        else:
            status = "ahead"
        entries.append({"phase": phase.value, "status": status, "took": None if status == "ahead" else took})
    return entries
