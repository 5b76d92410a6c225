"""Keeps node state where another scheduler than Kubernetes gives nodes their work.

Records are in the state file; whether a node takes work is the scheduler's to say. Both cannot be changed in one, so
the order decides what a killed process leaves: the state file knows of a drain before it is asked for, and of a resume
only after it. What is found drained by us is in the state file then, and the next run ends it.

Slurm takes a node for one that crashed if it hears of its boot only after the resume, and keeps it DOWN until an
administrator resumes it again. So a node that was changed is not ready before it has registered after a start, of its
own or with the machine. Nothing tells whether it will: after `REGISTERS`, nothing on it was started.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from provision.rollout.errors import ConflictError
from provision.rollout.interface.cluster import Eviction, EvictionOutcome, NodeProblem, OneByOne
from provision.rollout.model import ChangeKind, NodeView, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from provision.cluster.local.cluster import LocalCluster
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import GpuPod, Job, Record

MAINTENANCE: Final = "maintenance"
REGISTERS: Final = timedelta(minutes=2)  # for slurmd to register after a boot: ssh answers before it has started
_UNCHANGED: Final = (Phase.CORDON, Phase.JOBS, Phase.DRAIN, Phase.RELEASE)


class ScheduledCluster(OneByOne):
    """Machines of a scheduler. `write` may be called by several threads, for different nodes.

    ``registers`` is how long a node is waited for that may have yet to register after a boot.
    """

    def __init__(
        self,
        journal: LocalCluster,
        scheduler: Scheduler,
        *,
        registers: timedelta = REGISTERS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = f"{scheduler.name}, {journal.name}"
        self._journal = journal
        self._scheduler = scheduler
        self._kept: dict[str, NodeView] = {}  # as the state file has it
        self._seen: dict[str, SchedulerNode] = {}
        self._views: dict[str, NodeView | NodeProblem] = {}
        self._drained: set[str] = set()  # by this process
        self._registers, self._clock = registers, clock
        self._registered: dict[str, str] = {}  # as it was before anything was changed on the node
        self._mutex = threading.Lock()

    def observe(self, nodes: Collection[str]) -> dict[str, NodeView | NodeProblem]:
        """Return what state file and scheduler say; the same object while both say the same of a node."""
        with self._mutex:
            kept = self._journal.observe(nodes)
            seen = self._scheduler.look(kept)
            found = {}
            for name, view in kept.items():
                self._kept[name] = view
                view_now = self._view(view, seen[name])
                before = self._views.get(name)
                found[name] = self._views[name] = before if before == view_now and before is not None else view_now
            return found

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Remember ``record``, and have the scheduler drain or resume the node, in the order of the module's text."""
        with self._mutex:
            seen = self._seen[node]
            if cordoned and (not seen.is_drained or self._may_be_undone(node, seen)):
                self._drain(node, record)
            elif cordoned is False:
                self._resume(node, record)
            else:
                self._remember(node, record, cordoned=cordoned)
                if seen.is_ours and record is not None and record.phase is Phase.FAILED:
                    self._scheduler.drain(node, reason_of(record))

    def evict(self, pod: GpuPod) -> Eviction:  # there are no pods
        """Return that the pod is gone: there are none, and jobs are waited for."""
        return Eviction(outcome=EvictionOutcome.GONE)

    def has_runtime_class(self, name: str, handler: str) -> bool:
        """Return that none is needed."""
        return self._journal.has_runtime_class(name, handler)

    def ensure_runtime_class(self, name: str, handler: str) -> bool:
        """Return that nothing was created."""
        return self._journal.ensure_runtime_class(name, handler)

    def lease(self, holder: str) -> AbstractContextManager[None]:
        """Hold the lock of the state file: no scheduler has one for this."""
        return self._journal.lease(holder)

    def check_lease(self) -> None:
        """Never raise: the kernel keeps the lock for this process."""
        self._journal.check_lease()

    def paused(self) -> Pause | None:
        """Return the pause of the state file."""
        return self._journal.paused()

    def publish(self, standing: Standing) -> None:
        """Write it beside the state file."""
        self._journal.publish(standing)

    def _view(self, kept: NodeView, seen: SchedulerNode | NodeProblem) -> NodeView | NodeProblem:
        if isinstance(seen, NodeProblem):
            self._seen.pop(kept.name, None)
            return seen
        if seen.is_drained and seen.is_ours and not kept.is_cordoned:
            self._seen.pop(kept.name, None)
            return NodeProblem(
                name=kept.name,
                message=f"{self._scheduler.name} has it drained by grapnel, unknown to {self._journal.name}",
                hint="wait for whoever upgrades it from another machine; where nobody does, resume it by hand",
            )
        self._seen[kept.name] = seen
        if kept.record is not None and kept.record.phase in _UNCHANGED:
            self._registered[kept.name] = seen.registered
        why_not_ready = self._why_unheard_of(kept, seen) or seen.why_not_ready
        return replace(
            kept,
            is_cordoned=seen.is_drained,
            is_ready=not why_not_ready,
            work=seen.jobs,
            why_not_ready=why_not_ready,
            held_by=seen.held_by,
        )

    def _why_unheard_of(self, kept: NodeView, seen: SchedulerNode) -> str:
        """Return why a node that was changed may have yet to register, empty where that does not matter (any more)."""
        record = kept.record
        if record is None or record.phase is not Phase.RESUME or not seen.is_ours:
            return ""
        before = self._registered.get(kept.name, seen.registered)
        if not before or seen.registered not in ("", before):
            return ""
        until = record.since + self._registers
        if abs(self._clock() - record.since) >= self._registers:
            return ""
        return (
            f"it may have yet to register with {self._scheduler.name} after a reboot: "
            f"waited for until {until:%H:%M:%S} UTC at the latest"
        )

    def _may_be_undone(self, node: str, seen: SchedulerNode) -> bool:
        """Tell whether the process that noted a drain may have been killed before it was done."""
        return seen.is_remembered and node not in self._drained

    def _drain(self, node: str, record: Record | None) -> None:
        now = self._look(node)
        if now.is_drained and not now.is_remembered:
            raise self._conflict(node)
        self._remember(node, record, cordoned=True)
        self._scheduler.drain(node, MAINTENANCE if record is None else reason_of(record))
        self._drained.add(node)
        self._seen[node] = replace(now, is_drained=True, is_ours=True)

    def _resume(self, node: str, record: Record | None) -> None:
        """Resume the node unless others have drained it meanwhile: then that is theirs, and stays."""
        self._remember(node, self._kept[node].record, cordoned=None)  # a conflict comes before the effect
        now = self._look(node)
        if now.is_drained and now.is_ours:
            self._scheduler.resume(node)
            self._drained.discard(node)
            now = replace(now, is_drained=False, is_ours=False)
        self._remember(node, record, cordoned=False)
        self._seen[node] = now

    def _look(self, node: str) -> SchedulerNode:
        now = self._scheduler.look({node: self._kept[node]})[node]
        if isinstance(now, NodeProblem):
            raise ConflictError(f"{now.message} ({now.hint})" if now.hint else now.message)
        return now

    def _remember(self, node: str, record: Record | None, *, cordoned: bool | None) -> None:
        self._journal.write(node, record, cordoned=cordoned)
        kept = self._kept[node]
        self._kept[node] = replace(kept, record=record, is_cordoned=kept.is_cordoned if cordoned is None else cordoned)

    def _conflict(self, node: str) -> ConflictError:
        return ConflictError(
            f"{node} was drained in {self._scheduler.name} by somebody else meanwhile",
            hint="run apply again: it continues from what is true now",
        )


def reason_of(record: Record) -> str:
    """Return why a node is drained, in one word that `sinfo -R` shows."""
    if record.phase is Phase.FAILED:
        return f"failed-in-{record.failed_in or record.phase}"
    if record.kind is not ChangeKind.DRIVER:
        return record.kind.value
    return f"driver-{record.target}" if record.target else MAINTENANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerNode:
    """What a scheduler says of a node.

    ``is_drained``: it gets no new work; ``is_ours``: because grapnel said so. ``jobs`` are what still runs on it.
    ``why_not_ready`` is empty for a node that could work. ``held_by`` is why others hold it, with what ends it.
    ``is_remembered``: that it is drained is only known from the state file, which knows of a drain before it is done.
    ``registered`` is another text whenever the node has registered after a start; empty where nodes do not register.
    """

    is_drained: bool = False
    is_ours: bool = False
    jobs: tuple[Job, ...] = ()
    why_not_ready: str = ""
    held_by: str = ""
    is_remembered: bool = False
    registered: str = ""


class Scheduler(Protocol):
    """What gives work to nodes. Errors of all methods: ``provision.cluster.errors``, UnreachableError."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def look(self, views: Mapping[str, NodeView]) -> Mapping[str, SchedulerNode | NodeProblem]:
        """Return what is true of each node now; ``views`` are what the state file has on them."""

    def drain(self, node: str, reason: str) -> None:
        """Have a node that was looked at take no new work; doing it again does no harm."""

    def resume(self, node: str) -> None:
        """Have a node that was looked at take work again; doing it again does no harm."""
