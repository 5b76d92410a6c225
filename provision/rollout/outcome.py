"""What became of the nodes of a rollout. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.apply.model import Failure, NodeResult, Status, Upgrade
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.rollout.engine import Ending
    from provision.rollout.model import Record
    from provision.rollout.snapshot import NodeState

GOES_ON = "`grapnel apply` goes on from there"


def results_of(ending: Ending, nodes: Collection[str], *, canceled: bool) -> dict[str, NodeResult]:
    """Return what became of each of ``nodes``, those that had to go through the rollout."""
    states = {state.name: state for state in ending.nodes}
    return {name: _result(states[name], ending, canceled=canceled) for name in nodes}


def _result(state: NodeState, ending: Ending, *, canceled: bool) -> NodeResult:
    record = state.record
    if record is None or state.name not in ending.moved:
        return NodeResult(state.name, *_untouched(state, ending, canceled=canceled))
    swapped = ending.swapped.get(state.name)
    passes, changes = (swapped.passes, swapped.changes) if swapped is not None else (0, 0)
    status, failure = _ended(state, record, ending, canceled=canceled)
    return NodeResult(state.name, status, passes, changes, failure, _upgrade(record, ending))


def _upgrade(record: Record, ending: Ending) -> Upgrade:
    is_out = record.phase is not Phase.DONE
    until = ending.ended if is_out else record.since
    return Upgrade(record.origin, record.target, (until - record.began).total_seconds(), is_out=is_out)


def _untouched(
    state: NodeState, ending: Ending, *, canceled: bool
) -> tuple[Status, int, int, Failure | None, Upgrade | None]:
    record = state.record
    upgrade = None if record is None or record.phase is Phase.DONE else _upgrade(record, ending)
    status = Status.CANCELED if canceled else Status.WAITING
    reason = "not begun" if canceled else ending.waiting.get(state.name) or f"stopped: {ending.stop}"
    return status, 0, 0, Failure(status, reason), upgrade


def _ended(state: NodeState, record: Record, ending: Ending, *, canceled: bool) -> tuple[Status, Failure | None]:
    if record.phase is Phase.DONE:
        return Status.CONVERGED, None
    failure = ending.failures.get(state.name)
    if record.phase is Phase.FAILED:
        status = Status.UNREACHABLE if failure is not None and failure.status is Status.UNREACHABLE else Status.FAILED
        task, tail = ("", ()) if failure is None else (failure.task, failure.tail)
        return status, Failure(status, record.reason, task, tail)
    if canceled:
        return Status.CANCELED, Failure(Status.CANCELED, f"in {record.phase}: {GOES_ON}")
    return Status.UNFINISHED, Failure(Status.UNFINISHED, f"in {record.phase}, {ending.stop}: {GOES_ON}")
