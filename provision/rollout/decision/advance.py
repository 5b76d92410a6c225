"""Decides the next action on one node that is out of service. Pure.

Records name a phase before anything of that phase is done, and every phase may be done again: so a process
that was killed anywhere is followed by one that reads the record and continues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.leaving import again, has_to_leave, held, waits_for_jobs
from provision.rollout.decision.snapshot import Action, RunStep, Write
from provision.rollout.model import UNTOUCHED, Phase, Record

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.snapshot import NodeState, StepResult
    from provision.rollout.model import GpuPod

_NEXT: Final = {
    Phase.CORDON: Phase.DRAIN,  # or JOBS, where a declaration says what is waited for
    Phase.JOBS: Phase.DRAIN,
    Phase.DRAIN: Phase.RELEASE,
    Phase.RELEASE: Phase.SWAP,
    Phase.SWAP: Phase.VERIFY,
    Phase.VERIFY: Phase.RESUME,
    Phase.RESUME: Phase.DONE,
}
_BEFORE_VERIFY: Final = (Phase.CORDON, Phase.JOBS, Phase.DRAIN, Phase.RELEASE, Phase.SWAP)
_WITHOUT_STEP: Final = (Phase.CORDON, Phase.JOBS, Phase.DRAIN)

Move = tuple[Action | None, str]  # what to do now, and what keeps the node in its phase


def begin(node: NodeState, now: datetime) -> Action:
    """Take a node out of service, or try one again that failed: it is out of service already."""
    record = node.record
    if record is not None and record.phase is Phase.FAILED:
        return _restart(node, record, now)
    fresh = Record(
        phase=Phase.CORDON,
        target=node.target,
        origin=node.origin,
        began=now,
        since=now,
        was_cordoned=node.view.is_cordoned,
    )
    return Write(node.name, fresh, cordoned=True)


def advance(node: NodeState, record: Record, now: datetime, began: datetime) -> Move:
    """Return the next action on a node in flight; ``record`` is the node's, ``began`` when this process began."""
    record = _without_lifted_cordon(node, record)
    step = node.step if node.step is not None and node.step.phase is record.phase else None
    pods = has_to_leave(node)
    if record.target != node.target or _is_behind(node, record, step, pods):
        return _restart(node, record, now), ""
    if node.is_as_declared and record.phase in _BEFORE_VERIFY:
        return _enter(node, record, Phase.VERIFY, now), ""
    if step is not None and step.failure:
        return _fail(node, record, step.failure, now), ""
    if record.phase is Phase.JOBS:
        return _wait_for_jobs(node, record, now, began)
    reason = held(node, record, step, pods)
    if not reason:
        is_done = record.phase in _WITHOUT_STEP or (step is not None and step.is_done)
        return _go_on(node, record, now) if is_done else RunStep(node.name, record.phase), ""
    if now - max(record.believed_since(now, began), began) >= node.drain_timeout:
        return _fail(node, record, f"after {_minutes(node)}: {reason}", now), ""
    return again(node, record, step, now, pods), reason


def _without_lifted_cordon(node: NodeState, record: Record) -> Record:
    """Return the record after somebody lifted the cordon that was there before: the next one is this rollout's own."""
    return replace(record, was_cordoned=False) if record.was_cordoned and not node.view.is_cordoned else record


def _is_behind(node: NodeState, record: Record, step: StepResult | None, pods: tuple[GpuPod, ...]) -> bool:
    """Tell whether the node is not where its record says, since somebody was at it while nobody was at work here."""
    if record.phase is Phase.SWAP:
        return step is None and bool(pods or node.view.work)  # it was uncordoned, and they came back
    return node.is_disruptive and record.phase in (Phase.VERIFY, Phase.RESUME)


def _wait_for_jobs(node: NodeState, record: Record, now: datetime, began: datetime) -> Move:
    """Wait without evicting anything; the limit does not start over with a run: jobs go on while none is at work."""
    jobs, since = node.view.jobs or node.view.work, record.believed_since(now, began)
    until = None if node.drain.jobs is None else since + node.drain.jobs
    if not jobs or (until is not None and now >= until):
        return _go_on(node, record, now), ""
    reason = waits_for_jobs(node, until)
    return (None if node.view.is_cordoned else Write(node.name, record, cordoned=True)), reason


def _go_on(node: NodeState, record: Record, now: datetime) -> Write:
    is_first = record.phase is Phase.CORDON and node.drain.waits
    return _enter(node, record, Phase.JOBS if is_first else _NEXT[record.phase], now)


def _restart(node: NodeState, record: Record, now: datetime) -> Write:
    """Begin again, before anything that may end a pod."""
    out_of_service = Phase.JOBS if node.drain.waits else Phase.DRAIN
    phase = Phase.VERIFY if node.is_as_declared else out_of_service
    again = replace(record, target=node.target, reason="", failed_in=None, is_touched=_is_touched(record))
    return _enter(node, again, phase, now)


def _is_touched(record: Record) -> bool:
    """Tell whether more was done to a node than that pods were asked to leave."""
    return record.is_touched or (record.failed_in or record.phase) not in UNTOUCHED


def _enter(node: NodeState, record: Record, phase: Phase, now: datetime) -> Write:
    after = record.entering(phase, now)
    if phase is not Phase.DONE:
        return Write(node.name, after, cordoned=True)
    return Write(node.name, after, cordoned=None if record.was_cordoned else False)


def _fail(node: NodeState, record: Record, reason: str, now: datetime) -> Write:
    failed = replace(record.entering(Phase.FAILED, now), reason=reason, failed_in=record.phase)
    return Write(node.name, failed, cordoned=None)


def _minutes(node: NodeState) -> str:
    minutes = int(node.drain_timeout.total_seconds() // 60)
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
