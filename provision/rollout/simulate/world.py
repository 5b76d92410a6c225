"""Simulates a fleet: machines, pods, disruption budgets and an API server, in virtual time.

What happens to it comes from outside: engines act through `SimulatedCluster` and `VirtualExecutor`, people and faults
through the methods here. How long a step takes, and whether it fails, is asked of ``plan``.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from provision.apply.model import Failure, NodeResult, Status
from provision.rollout.decision.snapshot import Holder
from provision.rollout.model import Phase
from provision.rollout.simulate.machine import DriverExchange
from provision.rollout.step import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from provision.rollout.interface.pause import Pause
    from provision.rollout.model import Origin
    from provision.rollout.simulate.machine import Machine, Pod

_CHANGES: Final = (Phase.SWAP, Phase.ROLLBACK)
NOTICE_S: Final = 10.0  # until it is noticed that a connection is lost


Happening = Callable[[], None]


class VirtualTime:
    """Seconds since ``start``. ``jump`` is what the clock was put forward or back by: events do not mind."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.jump = timedelta(0)
        self.now_s = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Happening]] = []

    def __call__(self) -> datetime:
        """Return what a clock on the wall shows."""
        return self.start + timedelta(seconds=self.now_s) + self.jump

    def after(self, delay_s: float, happening: Happening) -> None:
        """Have something happen; what is due at the same moment happens in the order in which it was asked for."""
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._order), happening))

    def step(self, until_s: float) -> bool:
        """Let the next thing happen that is due by then; if nothing is, it is then, and the answer False."""
        if not self._due or self._due[0][0] > until_s:
            self.now_s = max(self.now_s, until_s)
            return False
        due_s, _order, happening = heapq.heappop(self._due)
        self.now_s = max(self.now_s, due_s)
        happening()
        return True


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """How long a step takes, and why it then fails, if it does."""

    duration_s: float
    failure: str = ""


class Plan(Protocol):
    """Says how each step goes; the same question has the same answer."""

    def step(self, node: str, phase: Phase, attempt: int, *, is_back: bool) -> PlannedStep:
        """Return how the step goes when it is the ``attempt``-th on the node; ``is_back``: on its way back."""


@dataclass(slots=True)
class Budget:
    """A PodDisruptionBudget: ``allowed`` pods may be gone at once; a new one is healthy ``restart_s`` after the old."""

    name: str
    allowed: int
    restart_s: float = 0.0
    gone: int = 0


class Watcher(Protocol):
    """Whoever is told of changes."""

    def changed(self, node: str) -> None:
        """Learn that the node is not as it was."""


class StepWaiter(Protocol):
    """Whoever began a step."""

    def ended(self, node: str, phase: Phase, outcome: StepOutcome) -> None:
        """Learn how it ended."""


@dataclass(slots=True, eq=False)
class _Run:
    machine: Machine
    phase: Phase
    target: str
    planned: PlannedStep
    waiter: StepWaiter


@dataclass(slots=True)
class World:
    """The fleet. ``runs`` are the steps that run; several on one node only where several engines are at it."""

    time: VirtualTime
    machines: dict[str, Machine]
    plan: Plan
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    away_until_s: float = 0.0
    refused_until_s: float = 0.0
    pause: Pause | None = None
    watchers: list[Watcher] = field(default_factory=list)
    runs: dict[_Run, None] = field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """Whether the API server does not answer."""
        return self.time.now_s < self.away_until_s

    def changed(self, node: str) -> None:
        """Tell everybody who watches."""
        for watcher in self.watchers:
            watcher.changed(node)

    # Steps

    def begin_step(
        self, waiter: StepWaiter, node: str, phase: Phase, back: Origin | None = None, *, undoes: bool = False
    ) -> None:
        """Run the step of a phase; on the way ``back``, for the driver that was there before.

        ``undoes``: its swap leads to the former driver.
        """
        machine = self.machines[node]
        if machine.record is not None:
            machine.ordered = machine.record.target
        attempt = machine.attempts[phase] = machine.attempts.get(phase, 0) + 1
        target = (machine.ordered or machine.driver) if back is None else back.version
        run = _Run(machine, phase, target, self.plan.step(node, phase, attempt, is_back=back is not None), waiter)
        self.runs[run] = None
        if not machine.is_up:
            self.time.after(NOTICE_S, lambda: self._lose(run))
            return
        delay_s = run.planned.duration_s
        if phase in _CHANGES:
            delay_s = self._begin_change(machine, run, is_back=undoes or phase is Phase.ROLLBACK)
        self.time.after(delay_s, lambda: self._end_step(run))

    def lose_connections(self, node: str) -> None:
        """Lose the steps that run on a node: what they have begun there goes on."""
        for run in [run for run in self.runs if run.machine.name == node]:
            self._lose(run)

    def end_steps(self, node: str) -> None:
        """Have others end the steps that run on a node: they say so, and what they have begun there goes on."""
        for run in [run for run in self.runs if run.machine.name == node]:
            self._answer(run, StepOutcome(failure=Failure(Status.CANCELED, "canceled")))

    def abandon(self, waiter: StepWaiter) -> None:
        """Let go of the steps of an engine that is gone; what they have begun on nodes goes on."""
        self.runs = {run: None for run in self.runs if run.waiter is not waiter}

    def cancel(self, waiter: StepWaiter) -> None:
        """End the steps of an engine that wants no more of them."""
        for run in [run for run in self.runs if run.waiter is waiter]:
            self._answer(run, StepOutcome(failure=Failure(Status.CANCELED, "apply again to finish")))

    def _begin_change(self, machine: Machine, run: _Run, *, is_back: bool) -> float:
        """Exchange the driver; an exchange that is under way already is waited for. Return how long it takes."""
        now_s, target = self.time.now_s, run.target
        if machine.change is not None and machine.change.target == target:
            return machine.change.ends_s - now_s
        begins_s = now_s if machine.change is None else machine.change.ends_s
        failure = machine.broken.get(run.phase) or run.planned.failure
        change = DriverExchange(target, begins_s + run.planned.duration_s, failure, is_back)
        if machine.change is None:
            self._start_change(machine, change)
        else:
            self.time.after(begins_s - now_s, lambda: self._start_change(machine, change))
        return change.ends_s - now_s

    def _start_change(self, machine: Machine, change: DriverExchange) -> None:
        machine.change, machine.verified = change, ""
        self.time.after(change.ends_s - self.time.now_s, lambda: self._end_change(machine, change))

    def _end_change(self, machine: Machine, change: DriverExchange) -> None:
        if machine.change is not change:
            return
        if not machine.is_up:  # it goes on after the boot
            change.ends_s = self.time.now_s + NOTICE_S
            self.time.after(NOTICE_S, lambda: self._end_change(machine, change))
            return
        machine.change, machine.last = None, change
        if change.failure or machine.driver == change.target:
            return
        if not change.is_back:
            machine.former.append(machine.driver)
        elif machine.former:
            machine.former.pop()
        machine.driver = change.target

    def _end_step(self, run: _Run) -> None:
        if run not in self.runs:
            return
        machine = run.machine
        if not machine.is_up:
            self._lose(run)
        else:
            self._answer(run, self._outcome(machine, run))

    def _outcome(self, machine: Machine, run: _Run) -> StepOutcome:
        phase = run.phase
        failure = machine.broken.get(phase) or run.planned.failure
        if phase is Phase.RELEASE and not failure:
            machine.is_released = True
            if machine.holders:
                machine.holders -= 1
                return StepOutcome(holders=(Holder(pid=7, command="train"),))
        if phase in _CHANGES:
            is_there = machine.driver == run.target and machine.change is None
            failure = "" if is_there else failure or "the driver is not the one that was declared"
        if phase is Phase.VERIFY and not failure:
            if machine.ill:
                failure = machine.ill
            elif machine.driver != run.target:
                failure = f"driver {machine.driver} runs, not {run.target}"
            else:
                machine.verified = machine.driver
        if phase is Phase.RESUME and not failure:
            machine.is_released = False
        if failure:
            return StepOutcome(failure=Failure(Status.FAILED, failure))
        return StepOutcome(swapped=NodeResult(machine.name, Status.CONVERGED, 1, 1) if phase is Phase.SWAP else None)

    def _lose(self, run: _Run) -> None:
        if run in self.runs:
            message = f"the connection to {run.machine.name} was lost"
            self._answer(run, StepOutcome(failure=Failure(Status.UNREACHABLE, message)))

    def _answer(self, run: _Run, outcome: StepOutcome) -> None:
        del self.runs[run]
        run.waiter.ended(run.machine.name, run.phase, outcome)

    # Pods

    def evict(self, uid: str, node: str) -> str | None:
        """Tell a pod to leave: None where it is not there, empty where it goes, else why it may not."""
        machine = self.machines[node]
        pod = machine.pods.get(uid)
        if pod is None:
            return None
        if pod.is_terminating:
            return ""
        if self.time.now_s < self.refused_until_s:
            return "evictions are refused for now"
        budget = self.budgets.get(pod.budget)
        if budget is not None:
            if budget.gone >= budget.allowed:
                return f"the disruption budget {budget.name} allows no further disruption"
            budget.gone += 1
        pod.is_terminating = True
        if not pod.is_stuck:
            self.time.after(pod.grace_s, lambda: self._leave(machine, pod, budget))
        self.changed(node)
        return ""

    def _leave(self, machine: Machine, pod: Pod, budget: Budget | None) -> None:
        if machine.pods.pop(pod.uid, None) is not None:
            self.changed(machine.name)
        if budget is not None:
            self.time.after(budget.restart_s, lambda: self._replaced(budget, machine.name))

    def _replaced(self, budget: Budget, node: str) -> None:
        budget.gone -= 1
        self.changed(node)  # an eviction that was refused may be tried again

    def unstick(self, node: str) -> None:
        """Have pods that would never end do so."""
        machine = self.machines[node]
        for pod in list(machine.pods.values()):
            if pod.is_stuck:
                pod.is_stuck = False
                if pod.is_terminating:
                    self._leave(machine, pod, self.budgets.get(pod.budget))

    def place(self, node: str, pods: Iterable[Pod]) -> None:
        """Have pods begin on a node."""
        self.machines[node].pods.update({pod.uid: pod for pod in pods})
        self.changed(node)

    # People, hardware and networks

    def cordon(self, node: str, who: str) -> None:
        """Cordon a node as others do."""
        machine = self.machines[node]
        machine.is_cordoned, machine.cordoned_by = True, who
        self.changed(node)

    def uncordon(self, node: str) -> None:
        """Uncordon a node as a person does, whoever had cordoned it."""
        machine = self.machines[node]
        machine.is_cordoned, machine.cordoned_by = False, ""
        self.changed(node)

    def take_down(self, node: str, for_s: float | None = None) -> None:
        """Have a node answer no more, and come back after a time, or not at all."""
        self.machines[node].is_up = False
        self.time.after(NOTICE_S, lambda: self._notice(node))
        self.changed(node)
        if for_s is not None:
            self.time.after(for_s, lambda: self.bring_up(node))

    def _notice(self, node: str) -> None:
        if not self.machines[node].is_up:
            self.lose_connections(node)

    def bring_up(self, node: str) -> None:
        """Have a node answer again."""
        self.machines[node].is_up = True
        self.changed(node)

    def fall_ill(self, node: str, what: str) -> None:
        """Have hardware of a node fail, which makes it not ready until it is repaired (empty)."""
        self.machines[node].ill = what
        self.changed(node)

    def delete(self, node: str) -> None:
        """Take a Node out of the cluster, with everything that was written on it."""
        machine = self.machines[node]
        machine.is_deleted, machine.record, machine.is_cordoned, machine.cordoned_by = True, None, False, ""
        self.changed(node)

    def join(self, node: str) -> None:
        """Have a Node of that name join the cluster again."""
        machine = self.machines[node]
        machine.is_deleted, machine.registered = False, machine.registered + 1
        self.changed(node)
