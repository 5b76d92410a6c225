"""Translates what happens during a run into the events that are written down. Pure but for its clock."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.carried_out import step_name
from provision.apply.model import Failure, NodeFinished, NodeTask, PassStarted, Staging
from provision.apply.runner import TaskOutcome, TaskStarted
from provision.report.runs.events import (
    NodeEnded,
    Noted,
    PassBegan,
    PhaseBegan,
    Planned,
    Stage,
    StepBegan,
    StepEnded,
    Waited,
)
from provision.rollout.interface.progress import NodeWaits, PhaseEntered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from provision.apply.model import Assessment, NodeResult
    from provision.apply.runner import TaskDone
    from provision.report.runs.events import RunEvent
    from provision.rollout.interface.progress import RolloutProgress

_LEFT: Final = re.compile(r" \([0-9:-]+ left\)")  # of a job: no news
_WAITS: Final = 100  # of one node


def planned(answers: Mapping[str, Assessment | Failure], now: datetime) -> Iterator[Planned]:
    """Yield the plans, equal ones once."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for node, answer in answers.items():
        if not isinstance(answer, Failure):
            plan = answer.plan
            alike.setdefault((plan.items, plan.problems, plan.warnings, plan.derived), []).append(node)
    for nodes in alike.values():
        answer = answers[nodes[0]]
        if not isinstance(answer, Failure):
            of = answer.plan
            yield Planned(
                time=now,
                nodes=tuple(nodes),
                items=of.items,
                problems=of.problems,
                warnings=of.warnings,
                derived=of.derived,
            )


def node_ended(result: NodeResult, now: datetime) -> NodeEnded:
    """Return how a node ended."""
    failure, upgrade = result.failure, result.upgrade
    return NodeEnded(
        time=now,
        node=result.node,
        result=result.status.value,
        is_good=result.is_good,
        changes=result.changes,
        passes=result.passes,
        task="" if failure is None else failure.task,
        message="" if failure is None else failure.message,
        output=() if failure is None else failure.tail,
        note=result.note,
        origin="" if upgrade is None else upgrade.origin,
        target="" if upgrade is None else upgrade.target,
        out_of_service_seconds=None if upgrade is None else round(upgrade.out_of_service_s, 1),
        is_out=upgrade is not None and upgrade.is_out,
    )


@dataclass(slots=True)
class Translation:
    """What happens, as events. ``clock`` gives moments."""

    clock: Callable[[], datetime]
    _steps: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    _waits: dict[str, str] = field(default_factory=dict)
    _waited: dict[str, int] = field(default_factory=dict)

    def of(self, progress: RolloutProgress) -> RunEvent | None:
        """Return the event, None for what is not worth a line."""
        now = self.clock()
        if isinstance(progress, NodeTask):
            return None if progress.gathering else self._task(progress, now)
        if isinstance(progress, PassStarted):
            return PassBegan(time=now, node=progress.node, number=progress.number)
        if isinstance(progress, Staging):
            return Stage(time=now, node=progress.node, done=progress.is_done)
        if isinstance(progress, PhaseEntered):
            self._waits.pop(progress.node, None)
            return PhaseBegan(time=now, node=progress.node, phase=progress.phase.value, reason=progress.reason)
        if isinstance(progress, NodeWaits):
            return self._wait(progress, now)
        if isinstance(progress, NodeFinished):
            return node_ended(progress.result, now)
        return Noted(time=now, node=progress.node, text=progress.text)

    def _task(self, progress: NodeTask, now: datetime) -> RunEvent | None:
        event = progress.event
        if not event.is_step:
            return self._arranging(event, now)
        name = step_name(event.task, event.role)
        if isinstance(event, TaskStarted):
            self._steps[event.node] = (name, now)
            return StepBegan(time=now, node=event.node, step=name)
        return self._done(event, name, now)

    def _arranging(self, event: TaskStarted | TaskDone, now: datetime) -> RunEvent | None:
        """Return what only arranges steps where it went wrong, as a check of arguments may."""
        if isinstance(event, TaskStarted) or event.outcome not in (TaskOutcome.FAILED, TaskOutcome.UNREACHABLE):
            return None
        return self._done(event, step_name(event.task, event.role), now)

    def _done(self, event: TaskDone, name: str, now: datetime) -> RunEvent | None:
        begun, since = self._steps.pop(event.node, (name, now))
        if event.outcome is TaskOutcome.SKIPPED:
            return StepEnded(time=now, node=event.node, step=name, seconds=0, outcome=event.outcome.value)
        return StepEnded(
            time=now,
            node=event.node,
            step=name,
            seconds=round((now - since).total_seconds(), 2) if begun == name else 0,
            outcome="ignored" if event.ignored else event.outcome.value,
            message=event.message,
            output=event.tail,
        )

    def _wait(self, waits: NodeWaits, now: datetime) -> Waited | None:
        """Return a reason once: how much of its time a job has left is no news."""
        told = _LEFT.sub("", waits.reason)
        if told == self._waits.get(waits.node, "") or self._waited.get(waits.node, 0) >= _WAITS:
            return None
        self._waits[waits.node] = told
        self._waited[waits.node] = self._waited.get(waits.node, 0) + 1
        return Waited(time=now, node=waits.node, reason=told)
