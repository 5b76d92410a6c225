"""Decides the next action on one node that is out of service. Pure.

Records name a phase before anything of that phase is done, and every phase may be done again: so a process
that was killed anywhere is followed by one that reads the record and continues.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.drain import again, has_to_leave, held, outdated, to_restart, waits_for_jobs
from provision.rollout.decision.snapshot import Action, Evict, RequestMaintenance, RunStep, Write
from provision.rollout.decision.turning import put_back, turn_round
from provision.rollout.model import BEFORE_SWAP, UNTOUCHED, ChangeKind, Phase, Record

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.order.domains import Domain
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
    Phase.ROLLBACK: Phase.VERIFY,
}
_NEXT_IN_PLACE: Final = {Phase.SWAP: Phase.VERIFY, Phase.VERIFY: Phase.DONE, Phase.ROLLBACK: Phase.VERIFY}
_BEFORE_VERIFY: Final = (Phase.CORDON, Phase.JOBS, Phase.DRAIN, Phase.RELEASE, Phase.SWAP)
_WITHOUT_STEP: Final = (Phase.CORDON, Phase.JOBS, Phase.DRAIN)
_NO_TIME: Final = timedelta(0)
_REACH_AGAIN: Final = timedelta(seconds=15)

Move = tuple[Action | None, str]  # what to do now, and what keeps the node in its phase


def begin(node: NodeState, now: datetime) -> Action:
    """Take a node out of service, or try one again that failed: it is out of service already.

    One that is changed in place begins with the change itself.
    """
    record = node.record
    if record is not None and record.phase is Phase.FAILED:
        return _restart(node, _without_lifted_cordon(node, record), now)
    if node.kind.is_in_place:
        return Write(node.name, _in_place(node, now), cordoned=None)
    fresh = Record(
        phase=Phase.CORDON,
        target=node.target,
        origin=node.origin,
        began=now,
        since=now,
        was_cordoned=node.view.is_cordoned,
        is_tainted=node.drain.taints,
        origin_change=node.origin_change,
        ailment=node.view.ailment,
        is_requested=node.view.maintenance is not None,
        opted_out=node.view.opt_out if node.view.maintenance is None else (),  # it serves until that is granted
        kind=node.kind,
        boot=node.boot,
        is_touched=node.is_released,  # by an upgrade whose record is gone
        back_for=node.back_for,
        upgraded_from=_upgraded_from(node),
    )
    return Write(node.name, fresh, cordoned=None if fresh.is_requested else True)


def _in_place(node: NodeState, now: datetime) -> Record:
    """Return the record of a change during which the node serves. A cordon that there is is not ours."""
    return Record(
        phase=Phase.VERIFY if node.is_as_declared else Phase.SWAP,
        target=node.target,
        origin=node.origin,
        began=now,
        since=now,
        was_cordoned=node.view.is_cordoned,
        origin_change=node.origin_change,
        ailment=node.view.ailment,
        kind=node.kind,
        interface=node.interface,
        origin_interface=node.former_interface,
        upgraded_from=_upgraded_from(node),
    )


def _upgraded_from(node: NodeState) -> str:
    """Return what a node had before the upgrade to what it has, which its next record keeps."""
    record = node.record
    if record is None:
        return ""
    has = {node.origin} if node.kind is ChangeKind.DRIVER else {node.origin, node.target}
    if record.phase is Phase.DONE and record.origin != record.target in has:
        return record.origin
    is_kept = record.origin in has or (record.kind is not ChangeKind.DRIVER is not node.kind)
    return record.upgraded_from if is_kept else ""


def advance(node: NodeState, record: Record, now: datetime, began: datetime, domain: Domain | None = None) -> Move:
    """Return the next action on a node in flight; ``record`` is the node's, ``began`` when this process began."""
    record = _without_lifted_cordon(node, record)
    if record.kind.is_in_place and not node.kind.is_in_place and not node.obstacle:  # it serves, so it can wait
        return _restart(node, record, now), ""
    step = node.step if node.step is not None and node.step.phase is record.phase else None
    pods = () if record.kind.is_in_place else has_to_leave(node)
    if not record.is_returning:  # whatever is declared by now, a node on its way back comes to its end first
        elsewhere = turn_round(node, record, now, domain) or _turn_elsewhere(node, record, step, pods, now, domain)
        if elsewhere is not None:
            return elsewhere, ""
    if step is not None and step.is_unreachable:
        return _reach_again(node, record, step, now)
    if step is not None and step.failure:
        return _fail(node, record, step.failure, now, domain), ""
    if record.phase is Phase.CORDON and has_to_be_granted(node, record):
        return _wait_to_be_granted(node, record, now, began)
    if record.phase is Phase.JOBS:
        return _wait_for_jobs(node, record, now, began, domain)
    reason = held(node, record, step, pods) or _why_lost(node, record)
    if not reason:
        is_done = record.phase in _WITHOUT_STEP or (step is not None and step.is_done)
        return _leave_phase(node, record, now, began, domain) if is_done else (_run(node, record), "")
    limit = node.drain.limit if record.phase is not Phase.RELEASE else node.drain.release or node.drain.limit
    if now - max(record.believed_since(now, began), began) >= limit:
        return _fail(node, record, f"after {_minutes(limit)}: {reason}", now, domain), ""
    action = again(node, record, step, now, pods)
    return (None if isinstance(action, RunStep) and _why_lost(node, record) else action), reason


def _turn_elsewhere(  # noqa: PLR0917 - what `advance` knows
    node: NodeState,
    record: Record,
    step: StepResult | None,
    pods: tuple[GpuPod, ...],
    now: datetime,
    domain: Domain | None,
) -> Write | None:
    """Return where a node goes whose way is another by now, None where it goes on."""
    if domain is not None and (back := _go_back_with(domain, node, record, now)):
        return back
    is_another = record.kind is not node.kind or (
        record.interface is not node.interface if node.kind.is_in_place else record.target != node.target
    )
    if is_another or _is_behind(node, record, step, pods):
        return _restart(node, record, now)
    if node.is_as_declared and record.phase in _BEFORE_VERIFY:
        return _enter(node, record, Phase.VERIFY, now)
    if record.phase is Phase.DRAIN and _has_yet_to_wait(node, record, now):
        return _enter(node, record, Phase.JOBS, now)
    if record.phase in BEFORE_SWAP and record.is_tainted is not node.drain.taints:
        tainted = replace(record, is_tainted=node.drain.taints)
        return Write(node.name, tainted, cordoned=None if record.phase is Phase.CORDON else True)
    return None


def _has_yet_to_wait(node: NodeState, record: Record, now: datetime) -> bool:
    """Tell whether jobs are on a node whose time is not up: they are waited for only since its drain has begun.

    Otherwise it would not have begun before they had ended, or their time was up.
    """
    if not node.drain.waits or all(job.is_terminating for job in node.view.jobs):
        return False
    return node.drain.jobs is None or record.began <= now < record.began + node.drain.jobs


def _leave_phase(node: NodeState, record: Record, now: datetime, began: datetime, domain: Domain | None) -> Move:
    """Go on from a phase that is done; in a domain, together with the others."""
    if record.is_called_off and record.phase is Phase.RESUME:
        return put_back(node, record, record.reason), ""
    if pods := to_restart(node, record):
        return Evict(node.name, pods), "pods that have the libraries of the former driver are restarted"
    if domain is not None and record.is_returning and record.phase is Phase.RESUME:
        reason = domain.why_not_back(record.origin)  # as where the domain was declared while it was on its way
        return _quarantine(node, record, reason, now) if reason else _go_on(node, record, now), ""
    reason = "" if domain is None or record.is_returning else domain.why_wait(record.phase)
    if domain is None or not reason:
        return replace(_go_on(node, record, now), remark=outdated(node, record)), ""
    return _wait_for_domain(domain, node, record, now, began), reason


def give_up(node: NodeState, record: Record, now: datetime) -> Write:
    """Return the end of a node that cannot go on, for a reason that was found before this process began."""
    is_unrelated = not record.phase.may_be_undone
    failed = replace(record.entering(Phase.FAILED, now), reason=node.obstacle, failed_in=record.phase)
    return Write(node.name, replace(failed, is_unrelated=is_unrelated), cordoned=None)


def _go_back_with(domain: Domain, node: NodeState, record: Record, now: datetime) -> Write | None:
    """Return the way back of a node whose domain has failed, None where it goes on.

    Where one of the domain is in service with the new driver, the others follow it: what fails then stays out.
    """
    failed = domain.failed
    if failed is None or domain.has_done or not node.may_return:
        return None
    reason = failed.obstacle if failed.record is None or failed.is_missing else failed.record.reason
    return _leave(node, record, failed.name, reason, now)


def _leave(node: NodeState, record: Record, because_of: str, reason: str, now: datetime) -> Write:
    """Bring a node back into service that has not failed itself; one that was not touched has nothing to verify."""
    back = replace(record, reason=reason, failed_in=record.phase, is_returning=True, because_of=because_of)
    is_untouched = record.phase in _WITHOUT_STEP and not record.is_touched
    return _enter(node, back, Phase.RETURNED if is_untouched else Phase.ROLLBACK, now)


def _wait_for_domain(domain: Domain, node: NodeState, record: Record, now: datetime, began: datetime) -> Write | None:
    """Wait for the others; one that has not even begun is not waited for for ever.

    It is in service with its driver, so a node that cannot go back to the same one stays out.
    """
    missing = domain.missing
    if missing is None:
        return None
    if now - max(record.believed_since(now, began), began) < node.drain.limit:
        return None
    reason = f"it does not take part: {missing.obstacle or 'its turn has not come'}"
    is_other = missing.is_half_done or (bool(missing.origin) and missing.origin != record.origin)
    if is_other or not node.may_return:
        apart = replace(record, is_unrelated=True)
        return _quarantine(node, apart, f"{missing.name} of its domain {domain.title}: {reason}", now)
    return _leave(node, record, missing.name, reason, now)


def _why_lost(node: NodeState, record: Record) -> str:
    """Return why the driver of a node is not touched: of one that is ill already, the cause could not be told."""
    if node.view.is_ready or record.is_returning or record.phase.may_be_undone:
        return ""
    return node.view.why_not_ready or "the kubelet is not ready"


def _next(record: Record) -> Phase:
    order = _NEXT_IN_PLACE if record.kind.is_in_place else _NEXT
    after = order[record.phase]
    return Phase.RETURNED if record.is_returning and after is Phase.DONE else after


def _run(node: NodeState, record: Record) -> RunStep:
    return RunStep(node.name, record.phase, record.way_back)


def _without_lifted_cordon(node: NodeState, record: Record) -> Record:
    """Return the record after the cordon that was there before was lifted: the next one is this rollout's own."""
    return replace(record, was_cordoned=False) if record.was_cordoned and not node.view.is_cordoned else record


def _is_behind(node: NodeState, record: Record, step: StepResult | None, pods: tuple[GpuPod, ...]) -> bool:
    """Tell whether the node is not where its record says, since it was changed while no engine was at work."""
    if record.phase is Phase.SWAP:  # it was uncordoned, and they came back
        return step is None and bool(pods or node.view.work) and not record.kind.is_in_place
    return node.is_disruptive and record.phase in (Phase.VERIFY, Phase.RESUME)


def _wait_for_jobs(node: NodeState, record: Record, now: datetime, began: datetime, domain: Domain | None) -> Move:
    """Wait without evicting anything; the limit does not start over with a run: jobs go on while none is at work."""
    jobs, since = node.view.jobs or node.view.work, record.believed_since(now, began)
    until = None if node.drain.jobs is None else since + node.drain.jobs
    if jobs and until is not None and now >= until and _must_give_up(node):
        waited = f"after {_minutes(node.drain.jobs or _NO_TIME)}: {waits_for_jobs(node, None)}"
        if domain is not None and (domain.has_done or not node.may_return):
            return _quarantine(node, record, waited, now), ""  # the others serve, or will, with another driver
        give_up = _quarantine if record.is_touched else _put_back
        return give_up(node, record, waited, now), ""
    if not jobs or (until is not None and now >= until):
        return _go_on(node, record, now), ""
    reason = waits_for_jobs(node, until)
    return (None if node.view.is_cordoned else Write(node.name, record, cordoned=True)), reason


def has_to_be_granted(node: NodeState, record: Record) -> bool:
    """Tell whether another system has yet to say that the node may leave service."""
    maintenance = node.view.maintenance  # None: it is not declared any more
    return record.is_requested and maintenance is not None and not maintenance.is_granted


def _wait_to_be_granted(node: NodeState, record: Record, now: datetime, began: datetime) -> Move:
    """Wait for the maintenance that the record says to be requested; the node is not cordoned before."""
    maintenance, limit = node.view.maintenance, node.drain.maintenance
    words = "" if maintenance is None else maintenance.words
    if now - max(record.believed_since(now, began), began) >= limit:
        give_up = _quarantine if record.is_touched else _put_back
        return give_up(node, record, f"after {_minutes(limit)}: {words}", now), ""
    is_there = maintenance is not None and maintenance.is_requested
    return None if is_there else RequestMaintenance(node.name), words


def _must_give_up(node: NodeState) -> bool:
    """Tell whether a node is given up whose jobs have not ended in time: what is never evicted cannot be drained."""
    return node.drain.gives_up or bool(node.view.work) or any(pod.only_waited for pod in node.view.jobs)


def _put_back(node: NodeState, record: Record, reason: str, now: datetime) -> Write:
    """Return a node to service as it was: nothing was done to it but the cordon, and the change is not to blame."""
    after = replace(record, reason=reason, failed_in=record.phase, is_unrelated=True)
    return _enter(node, after, Phase.RETURNED, now)


def _go_on(node: NodeState, record: Record, now: datetime) -> Write:
    is_first = record.phase is Phase.CORDON
    after = _kept_off(node, record) if is_first else record
    return _enter(node, after, Phase.JOBS if is_first and node.drain.waits else _next(record), now)


def _kept_off(node: NodeState, record: Record) -> Record:
    """Return the record of a node that leaves service, with the labels that are to keep other tools off it."""
    labels = tuple(dict.fromkeys((*record.opted_out, *node.view.opt_out)))
    return replace(record, opted_out=labels) if node.view.opt_out else record


def _restart(node: NodeState, record: Record, now: datetime) -> Write:
    """Begin again, before anything that may end a pod."""
    if node.kind.is_in_place:
        return Write(node.name, replace(_in_place(node, now), began=record.began), cordoned=None)
    if record.kind.is_in_place:
        record = replace(record, was_cordoned=node.view.is_cordoned, interface=None, origin_interface=None)
    out_of_service = Phase.JOBS if node.drain.waits else Phase.DRAIN
    phase = Phase.VERIFY if node.is_as_declared else out_of_service
    again = replace(
        record,
        target=node.target,
        reason="",
        failed_in=None,
        is_returning=False,
        is_unrelated=False,
        ailment="",
        because_of="",
        is_touched=_is_touched(record),
        kind=node.kind,
        boot=record.boot if record.kind is node.kind else node.boot,
        back_for=node.back_for,
        upgraded_from=_upgraded_from(node),
    )
    again = replace(again, is_tainted=node.drain.taints)
    if record.phase is Phase.FAILED:  # what was requested ended with the failure
        again = replace(again, is_requested=node.view.maintenance is not None, opted_out=())
    is_first = record.phase in (Phase.CORDON, Phase.FAILED)
    if is_first and phase is out_of_service and has_to_be_granted(node, again):
        return _enter(node, again, Phase.CORDON, now)
    return _enter(node, _kept_off(node, again) if is_first else again, phase, now)


def _is_touched(record: Record) -> bool:
    """Tell whether more was done to a node than that pods were asked to leave."""
    return record.is_touched or (record.failed_in or record.phase) not in UNTOUCHED


def _enter(node: NodeState, record: Record, phase: Phase, now: datetime) -> Write:
    after = record.entering(phase, now)
    if phase is Phase.DONE and node.back_for:
        after = record.sent_back(node.back_from, node.back_for, now)
    if after.kind.is_in_place or phase is Phase.CORDON:  # not before it is granted
        return Write(node.name, after, cordoned=None)
    if not phase.is_in_service:
        return Write(node.name, after, cordoned=True)
    return Write(node.name, after, cordoned=None if record.was_cordoned else False)


def _reach_again(node: NodeState, record: Record, step: StepResult, now: datetime) -> Move:
    """Try a step again on a node that could not be reached: it may reboot, and a swap goes on without us.

    Nothing leads back from a node that cannot be reached.
    """
    if node.lost_since is not None and now - node.lost_since >= node.lost_timeout:
        return _quarantine(node, record, f"after {_minutes(node.lost_timeout)}: {step.failure}", now), ""
    action = _run(node, record) if now - step.ended >= _REACH_AGAIN else None
    return action, f"cannot be reached: {step.failure}"


def _fail(node: NodeState, record: Record, reason: str, now: datetime, domain: Domain | None) -> Write:
    """Return to the former driver where it may have been changed; what fails on that way is quarantined.

    So is a node of a domain that is in service with the new driver already: it must not serve with another one.
    """
    is_alone = domain is not None and domain.has_done
    if record.is_returning or is_alone or not (node.may_return and record.phase.may_be_undone):
        return _quarantine(node, record, reason, now)
    back = replace(record, reason=_with_ailment(record, reason), failed_in=record.phase, is_returning=True)
    return _enter(node, replace(back, is_unrelated=bool(record.ailment)), Phase.ROLLBACK, now)


def _quarantine(node: NodeState, record: Record, reason: str, now: datetime) -> Write:
    """Leave a node out of service. Before the swap it was not the change that made it ill, or made it go."""
    where, is_unrelated = record.phase, record.is_unrelated
    if record.is_called_off:
        reason = f"{record.reason}; and it could not be put back into service with what it has: {reason}"
        record = replace(record, is_returning=False)
    elif record.is_returning:
        cause = f"{record.because_of} of its domain" if record.because_of else record.failed_in
        reason = f"{cause} failed: {record.reason}; the way back failed in {where}: {reason}"
        where = Phase.ROLLBACK
    elif not where.may_be_undone and (not node.view.is_ready or node.lost_since is not None):
        reason, is_unrelated = f"{reason}; {_GONE}", True
    else:
        reason, is_unrelated = _with_ailment(record, reason), is_unrelated or bool(record.ailment)
    failed = replace(
        record.entering(Phase.FAILED, now),
        reason=reason,
        failed_in=where,
        is_unrelated=is_unrelated,
        because_of="",  # that the way back failed is its own failure
    )
    return Write(node.name, failed, cordoned=None)


_GONE: Final = "the node was lost before its driver was touched, so the change is not the cause"


def _with_ailment(record: Record, reason: str) -> str:
    return f"{reason}; before the change already: {record.ailment}" if record.ailment else reason


def _minutes(time: timedelta) -> str:
    minutes = int(time.total_seconds() // 60)
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
