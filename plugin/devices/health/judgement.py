"""The next state of every GPU's health from what one look brought. Pure, and each GPU for itself.

Order within a look: a person's new verdict, then what is not checked any more, then resets, then what is seen now,
then what has passed. What is seen in a look is never closed by it. Not here: how a look is made (`keeper`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.health.conditions import ECC, NVLINK, is_set_back, lost, see_conditions
from plugin.devices.health.evidence import why_closed
from plugin.devices.health.model import (
    NEEDS,
    Class,
    Finding,
    FindingChange,
    GpuHealth,
    NodeHealth,
    Sighting,
    Transition,
)
from plugin.devices.health.slices import DESTROYED, blamed, destroyed, has_blamed_memory, is_slice, slice_input
from plugin.devices.health.xid import is_skipped, judge_xid
from plugin.driver.reading import Counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.devices.health.model import GpuInput, HealthInput, Moment, Policy, Verdict
    from plugin.driver.reading import Reading

_MAX_FINDINGS = 64  # of one GPU: a driver that tells another number each time must not fill the disk
_MAX_REASON = 200  # a reason travels in a gRPC status, which is a header


def why_unhealthy(gpu: GpuHealth) -> str:
    """Return why a GPU may not be given away, "" when it may. A verdict stands above all findings."""
    if gpu.verdict is not None:
        return "" if gpu.verdict.is_healthy else f"set unhealthy by hand: {gpu.verdict.reason}"[:_MAX_REASON]
    worst = max((finding for finding in gpu.findings if finding.kind.condemns), key=_severity, default=None)
    return "" if worst is None else f"{worst.cause}: {worst.detail}; needs {NEEDS[worst.kind]}"[:_MAX_REASON]


def _severity(finding: Finding) -> tuple[Class, str]:
    return finding.kind, finding.cause


def next_health(state: NodeHealth, look: HealthInput, policy: Policy) -> tuple[NodeHealth, tuple[Transition, ...]]:
    """Return the state after a look, and what changed.

    A GPU that is not in the look keeps its findings. An event of a GPU that the driver blames on MIG devices is theirs,
    one of an unknown device is told and condemns no GPU.
    """
    xids, strays = _by_gpu(look, policy)
    gone, there = set(destroyed(state, look)), {each.uuid for each in look.slices}
    gpus = {
        uuid: gpu for uuid, gpu in state.gpus.items() if uuid not in gone and not (is_slice(uuid) and uuid in there)
    }
    changes: list[Transition] = [
        Transition("", FindingChange.STRAY, sighting.cause, sighting.kind, sighting.detail, look.moment.utc)
        for sighting in strays
    ]
    troubled = {gpu.uuid for gpu in look.gpus if gpu.absent or _is_in_trouble(state.gpus.get(gpu.uuid))}
    for gpu in look.gpus:
        before = state.gpus.get(gpu.uuid, GpuHealth())
        course = _Course(gpu.uuid, before, look.moment, policy)
        course.take_verdict(look)
        course.take_policy()
        course.is_memory_blamed = has_blamed_memory(gpu.uuid, look)
        course.take_reading(gpu, is_alone=not troubled - {gpu.uuid}, xids=xids.get(gpu.uuid, ()))
        course.close(gpu)
        gpus[gpu.uuid] = course.gpu
        changes += course.changes
    gpus.update(_judge_slices(state, look, policy, xids, changes))
    return NodeHealth(gpus), tuple(changes)


def _judge_slices(
    state: NodeHealth,
    look: HealthInput,
    policy: Policy,
    xids: Mapping[str, list[Sighting]],
    changes: list[Transition],
) -> dict[str, GpuHealth]:
    """Return the MIG devices that something is open against; adds to the changes."""
    found: dict[str, GpuHealth] = {}
    gone = destroyed(state, look)
    for each in look.slices:
        if each.uuid not in state.gpus and each.uuid not in xids:
            continue
        course = _Course(each.uuid, state.gpus.get(each.uuid, GpuHealth()), look.moment, policy)
        course.take_parents_verdict(look.verdicts.get(each.gpu))
        course.take_policy()
        one = slice_input(each, look)
        course.take_reading(one, is_alone=True, xids=xids.get(each.uuid, ()))
        course.close(one)
        changes += course.changes
        if course.gpu.findings or course.gpu.returns:
            found[each.uuid] = course.gpu
    for uuid in gone:
        open_ = state.gpus[uuid].findings
        changes += [Transition(uuid, FindingChange.CLOSED, f.cause, f.kind, DESTROYED, look.moment.utc) for f in open_]
    return found


def _is_in_trouble(gpu: GpuHealth | None) -> bool:
    return gpu is not None and any(finding.kind.condemns and finding.cause != NVLINK for finding in gpu.findings)


def _by_gpu(look: HealthInput, policy: Policy) -> tuple[Mapping[str, list[Sighting]], list[Sighting]]:
    """Sort the events by GPU; the second list is of those whose device is not known."""
    known = {gpu.uuid for gpu in look.gpus}
    xids: dict[str, list[Sighting]] = {}
    strays = []
    for event in look.events:
        uuid = look.parents.get(event.device, event.device)
        xid = judge_xid(event.xid, policy)
        if uuid in known:
            for each in blamed(event, look) or (uuid,):
                xids.setdefault(each, []).append(Sighting(f"xid {xid.number}", xid.kind, xid.meaning))
        else:
            device = event.device[:64] or "a device that cannot be told"
            strays.append(Sighting(f"xid {xid.number}", Class.NOTED, f"{xid.meaning}, of {device}"))
    return xids, strays


class _Course:
    """One GPU while one input is judged."""

    def __init__(self, uuid: str, before: GpuHealth, moment: Moment, policy: Policy) -> None:
        self.gpu = before
        self.changes: list[Transition] = []
        self.is_memory_blamed = False  # an error of its memory is one of its MIG devices'
        self._uuid = uuid
        self._moment = moment
        self._policy = policy
        self._has_reading = False

    def _tell(self, change: FindingChange, cause: str, kind: Class, reason: str) -> None:
        self.changes.append(Transition(self._uuid, change, cause, kind, reason, self._moment.utc))

    def take_verdict(self, look: HealthInput) -> None:
        """Follow the person; who calls a GPU healthy vouches for what is open against it until now."""
        verdict = look.verdicts.get(self._uuid)
        if verdict == self.gpu.verdict:
            return
        if verdict is None:
            self._tell(FindingChange.VERDICT, "verdict", Class.NOTED, "the verdict by hand was cleared")
        else:
            word = "healthy" if verdict.is_healthy else "unhealthy"
            self._tell(FindingChange.VERDICT, "verdict", Class.NOTED, f"set {word} by hand: {verdict.reason}")
        if verdict is not None and verdict.is_healthy:
            for finding in self.gpu.findings:
                self._tell(FindingChange.CLOSED, finding.cause, finding.kind, "set healthy by hand")
            self.gpu = self.gpu._replace(findings=(), returns=())
        self.gpu = self.gpu._replace(verdict=verdict)

    def take_parents_verdict(self, verdict: Verdict | None) -> None:
        """Close what is open against a MIG device whose GPU an administrator has called healthy."""
        if verdict is not None and verdict.is_healthy:
            for finding in self.gpu.findings:
                self._tell(FindingChange.CLOSED, finding.cause, finding.kind, "its gpu was set healthy by hand")
            self.gpu = self.gpu._replace(findings=(), returns=())

    def take_policy(self) -> None:
        """Close what the operator has not checked any more; it may be seen again, and is only noted then."""
        for finding in self.gpu.findings:
            if finding.kind.condemns and is_skipped(finding.cause, self._policy):
                self._tell(FindingChange.CLOSED, finding.cause, finding.kind, "not checked: DP_DISABLE_HEALTHCHECKS")
                self.gpu = self.gpu._replace(findings=tuple(f for f in self.gpu.findings if f.cause != finding.cause))

    def take_reading(self, look: GpuInput, *, is_alone: bool, xids: Iterable[Sighting]) -> None:
        """Open or renew what is seen now."""
        self._start_load()
        self._has_reading = look.reading is not None
        if look.reading is not None and is_set_back(self.gpu.counters, look.reading.counters):
            resets = self.gpu.resets + 1
            self.gpu = self.gpu._replace(resets=resets, counters=Counters(), links_best=None, returns=())
        for sighting in xids:
            self._see(sighting)
        if look.absent:
            self._see(lost(look.absent))
        if look.reading is not None:
            for sighting in see_conditions(self.gpu, look.reading, is_alone=is_alone):
                is_noted = is_skipped(sighting.cause, self._policy) or (self.is_memory_blamed and sighting.cause == ECC)
                self._see(sighting._replace(kind=Class.NOTED) if is_noted else sighting)
            self._remember(look.reading)

    def _start_load(self) -> None:
        """Forget what is only comparable within one boot and one load of the driver."""
        load = (self._moment.boot_id, self._moment.module_id)
        if (self.gpu.boot_id, self.gpu.module_id) != load:
            boot_id, module_id = load
            self.gpu = self.gpu._replace(
                boot_id=boot_id, module_id=module_id, counters=Counters(), read_s=0.0, links_best=None, returns=()
            )

    def _remember(self, reading: Reading) -> None:
        best = max((links for links in (self.gpu.links_best, reading.links_active) if links is not None), default=None)
        self.gpu = self.gpu._replace(counters=reading.counters, read_s=self._moment.uptime_s, links_best=best)

    def _hardened(self, sighting: Sighting) -> Sighting:
        """Return it as one that quiet does not end, where quiet has brought the GPU back too often already."""
        recent = [at for at in self.gpu.returns if self._moment.uptime_s - at < self._policy.returns_s]
        if sighting.kind is not Class.PASSING or len(recent) < self._policy.returns:
            return sighting
        detail = f"{sighting.detail}; quiet has brought it back {len(recent)} times in a day"
        return sighting._replace(kind=Class.RESET, detail=detail)

    def _see(self, sighting: Sighting) -> None:
        sighting = self._hardened(sighting)
        known = next((finding for finding in self.gpu.findings if finding.cause == sighting.cause), None)
        kind = sighting.kind if known is None else max(known.kind, sighting.kind)
        finding = Finding(
            cause=sighting.cause,
            kind=kind,
            detail=sighting.detail,
            since=self._moment.utc if known is None else known.since,
            boot_id=self._moment.boot_id,
            module_id=self._moment.module_id,
            seen_s=self._moment.uptime_s,
            resets=self.gpu.resets + self._resets_to_come(),
        )
        others = [other for other in self.gpu.findings if other.cause != sighting.cause]
        if len(others) >= _MAX_FINDINGS:
            others.remove(min(others, key=lambda other: (other.kind, other.seen_s)))
        self.gpu = self.gpu._replace(findings=(*others, finding))
        if known is None or kind > known.kind:
            self._tell(FindingChange.OPENED, finding.cause, kind, finding.detail)

    def _resets_to_come(self) -> int:
        """Count a reset that may have been before what is seen now, and will only show in the next reading.

        While a session is open no GPU is reset: nvidia-smi refuses as long as any process has it open.
        """
        is_open_since = self._moment.watched_since_s <= self.gpu.read_s
        return 0 if self._has_reading or is_open_since else 1

    def _count_return(self, finding: Finding) -> None:
        """Remember that nothing but quiet speaks for the GPU."""
        then = (finding.boot_id, finding.module_id, finding.resets)
        if finding.kind is not Class.PASSING or then != (self.gpu.boot_id, self.gpu.module_id, self.gpu.resets):
            return
        returns = (*self.gpu.returns, self._moment.uptime_s)[-self._policy.returns :]
        self.gpu = self.gpu._replace(returns=returns)

    def close(self, look: GpuInput) -> None:
        """Close what has the evidence that it asks for; for what is seen now there is none yet."""
        for finding in self.gpu.findings:
            why = why_closed(finding, self.gpu.resets, look, self._moment, self._policy)
            if why:
                self._tell(FindingChange.CLOSED, finding.cause, finding.kind, why)
                self.gpu = self.gpu._replace(findings=tuple(f for f in self.gpu.findings if f.cause != finding.cause))
                self._count_return(finding)
