"""Derives the result of each node from the end of a rollout. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.apply.model import Failure, NodeResult, Status, Upgrade
from provision.rollout.model import ChangeKind, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutResult:
    """How a rollout ended.

    ``moved`` are the nodes that it acted on, ``put_back`` those whose change it took back, ``failures`` and ``swapped``
    what its steps returned, ``stop`` why no further node began. ``is_handed_over``: whoever had it run goes on at once,
    from where it has left the nodes.
    """

    nodes: tuple[NodeState, ...]
    moved: frozenset[str]
    waiting: Mapping[str, str]
    stop: str
    failures: Mapping[str, Failure]
    swapped: Mapping[str, NodeResult]
    ended: datetime
    is_handed_over: bool = False
    put_back: frozenset[str] = frozenset()


APPLY = "grapnel apply"


def results_of(
    rollout: RolloutResult, nodes: Collection[str], *, canceled: bool, command: str = APPLY
) -> dict[str, NodeResult]:
    """Return what became of each of ``nodes``, those that had to go through the rollout of a command.

    ``canceled``: it was ended from outside. What it has not finished then has not failed, and is told in that way; the
    same where it was handed over.
    """
    states = {state.name: state for state in rollout.nodes}
    canceled = rollout.is_handed_over or (canceled and not rollout.stop)
    return {name: _result(states[name], rollout, command, canceled=canceled) for name in nodes}


def _result(state: NodeState, rollout: RolloutResult, command: str, *, canceled: bool) -> NodeResult:
    record = state.record
    if record is None or state.name not in rollout.moved or _is_former(state, record):
        return _untouched(state, rollout, canceled=canceled)
    swapped = rollout.swapped.get(state.name)
    passes, changes = (swapped.passes, swapped.changes) if swapped is not None else (0, 0)
    status, failure = _ended(state, record, rollout, command, canceled=canceled)
    return NodeResult(state.name, status, passes, changes, failure, _upgrade(state, record, rollout))


def _is_former(state: NodeState, record: Record) -> bool:
    """Tell whether what has failed is an upgrade to what is not declared any more: another one has yet to begin."""
    is_left = bool(state.obstacle or state.back_for)  # it is left where it is
    return record.phase.is_over and record.has_failed and record.target != state.target and not is_left


def _upgrade(state: NodeState, record: Record, rollout: RolloutResult) -> Upgrade | None:
    """Return how long the node was out of service, and for which drivers; None where it served all the time."""
    if record.kind.is_in_place:
        return None
    is_out = not record.phase.is_in_service and not (record.phase is Phase.FAILED and state.takes_pods)
    until = rollout.ended if is_out else record.since
    target = record.origin if record.phase is Phase.RETURNED else record.target
    origin = record.origin if record.kind is ChangeKind.DRIVER else target  # of an upgrade before, if it is another
    origin = record.target if record.was_sent_back else origin
    return Upgrade(origin, target, (until - record.began).total_seconds(), is_out=is_out)


def _untouched(state: NodeState, rollout: RolloutResult, *, canceled: bool) -> NodeResult:
    record = state.record
    upgrade = None if record is None or record.phase.is_in_service else _upgrade(state, record, rollout)
    # Put back with what it has. One that was abandoned on its way may get another driver, and offers no GPU yet.
    # Nothing is remembered then, or the upgrade before what it was to be changed for.
    is_put_back = record is None or (record.phase is Phase.DONE and state.name in rollout.put_back)
    if state.is_as_declared and is_put_back and not (canceled or state.is_released):
        return NodeResult(state.name, Status.UNCHANGED, note="is back in service: it has what is declared")
    is_skipped = state.view.is_skipped and upgrade is None and not canceled
    status = Status.CANCELED if canceled else Status.SKIPPED if is_skipped else Status.WAITING
    if status is Status.SKIPPED:  # as an administrator wants it: no failure
        return NodeResult(state.name, status, note=f"no upgrade begins on it until `grapnel skip --undo {state.name}`")
    why = rollout.waiting.get(state.name) or state.called_off or state.obstacle or f"stopped: {rollout.stop}"
    reason = "not started" if canceled else why
    return NodeResult(state.name, status, failure=Failure(status, reason), upgrade=upgrade)


def _ended(
    state: NodeState, record: Record, rollout: RolloutResult, command: str, *, canceled: bool
) -> tuple[Status, Failure | None]:
    if record.phase is Phase.DONE:
        return Status.CONVERGED, None
    failure = rollout.failures.get(state.name)
    if record.phase.is_over:
        status = Status.UNREACHABLE if failure is not None and failure.status is Status.UNREACHABLE else Status.FAILED
        status = Status.RETURNED if record.phase is Phase.RETURNED else status
        task, tail = ("", ()) if failure is None else (failure.task, failure.tail)
        return status, Failure(status, record.complaint, task, tail)
    if state.has_failed:
        return Status.FAILED, Failure(Status.FAILED, f"given up in {record.phase}: {state.obstacle}")
    if canceled:
        return Status.CANCELED, Failure(Status.CANCELED, _where(record, command))
    return Status.UNFINISHED, Failure(Status.UNFINISHED, _where(record, command, f", {rollout.stop}"))


def _where(record: Record, command: str, why: str = "") -> str:
    """Return where a node was left, and which command goes on."""
    return f"in {record.phase}{why}: `{command}` continues from there"
