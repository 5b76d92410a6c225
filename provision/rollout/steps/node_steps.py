"""Runs the steps on a node, as playbooks of the collection."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.apply.converge import converge, reassess
from provision.apply.follow import Followed, follow
from provision.apply.model import Assessment, Failure, NodeResult, Note, Status
from provision.apply.playbooks import DAEMON_RESULT
from provision.declaration.fleet.errors import AnswerError
from provision.declaration.fleet.facts.release_result import parse_release_result
from provision.declaration.spec.model import Capability, Processes
from provision.planning.planner.mig import expected_mig
from provision.rollout.decision.snapshot import Holder
from provision.rollout.model import Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_program import (
    GONE_BACK,
    TRIES,
    is_running,
    last_word,
    unheard,
    verdict,
    wait_for_program,
)
from provision.rollout.steps.way_back import WayBack

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.declaration.fleet.facts.driver import DriverRun, DriverState
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver, StackSpec
    from provision.rollout.model import Origin

EXPECTATION: Final = "grapnel.dev/expectation/v1alpha1"


@dataclass(frozen=True, slots=True)
class NodeSteps:
    """Runs steps through the context of an apply; ``stacks`` are the nodes' declarations.

    ``known`` are assessments that a swap may start from, each used once; ``verified`` are nodes whose driver was
    verified by the run that swapped it, so that it need not be done twice. ``unsettled`` has the node's driver run
    from before a swap of which it is not known yet what became of it.

    A node without a daemon is asked as well: the collection itself then finds who holds a GPU, and what is loaded.
    """

    context: ApplyContext
    stacks: Mapping[str, StackSpec]
    known: dict[str, Assessment] = field(default_factory=dict)
    verified: set[str] = field(default_factory=set)
    unsettled: dict[str, DriverRun | None] = field(default_factory=dict)

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Do what the phase is about; doing it again does no harm."""
        if back is not None:
            return self._run_back(node, phase, observe, cancel, back)
        if phase is Phase.RELEASE:
            self.unsettled.pop(node, None)
            return self._release(node, observe, cancel)
        if phase is Phase.SWAP:
            return self._swap(node, observe, cancel)
        if phase is Phase.VERIFY:
            return self._verify(node, observe, cancel)
        return StepOutcome(failure=self._daemon(phase, node, {}, observe, cancel).failure)

    def _run_back(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin
    ) -> StepOutcome:
        """Do what a phase of the way back is about; a node that had no driver has nothing to verify or to offer."""
        if phase is Phase.ROLLBACK:
            self.verified.discard(node)
            return WayBack(self.context, back, lambda: self._release(node, observe, cancel)).go(node, observe, cancel)
        if not back.version:
            return StepOutcome()
        if phase is not Phase.VERIFY:
            return StepOutcome(failure=self._daemon(phase, node, {}, observe, cancel).failure)
        driver = msgspec.structs.replace(self.stacks[node].driver, enabled=True, version=back.version, branch=None)
        mig = self._mig(node, observe, cancel, as_it_is=True)  # the driver goes back, and a layout stays
        if isinstance(mig, Failure):
            return StepOutcome(failure=mig)
        variables = {"grapnel_expectation": {**render_expectation(driver), **mig}}
        return StepOutcome(failure=self._daemon(phase, node, variables, observe, cancel).failure)

    def _release(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        terminates = self.stacks[node].rollout.drain.processes is Processes.TERMINATE
        followed = self._daemon(Phase.RELEASE, node, {"grapnel_terminate": True} if terminates else {}, observe, cancel)
        if followed.failure is not None:
            return StepOutcome(failure=followed.failure)
        try:
            answer = parse_release_result(followed.values.get(DAEMON_RESULT))
        except AnswerError as error:
            return _failed(error.message)
        if not answer.released:
            return _failed("the node daemon has not released the GPUs")
        return StepOutcome(
            holders=tuple(
                Holder(pid=one.pid, command=one.command, unit=one.unit or "", pod_uid=one.pod_uid or "")
                for one in answer.holders
            )
        )

    def _swap(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        """Bring the node to its declaration, and verify its driver in the same run.

        Who carries that out on the node may be ended in the middle of it, and says nothing of the driver then. So only
        the word of the node's own program is a failure of the swap; whatever else fails, the node is looked at, and it
        counts where it fails again.
        """
        looked = self._assessment(node, observe, cancel)
        if isinstance(looked, Failure):
            return StepOutcome(failure=looked)
        before = self.unsettled.setdefault(node, looked.facts.driver.run)
        result = self._exchange(node, self._at_rest(node, looked, observe, cancel), before, observe, cancel)
        if result.failure is None or result.failure.status not in {Status.UNREACHABLE, Status.CANCELED}:
            del self.unsettled[node]
        if result.failure is None and is_verified(result.verification):
            self.verified.add(node)
        return StepOutcome(failure=result.failure, swapped=result)

    def _exchange(
        self,
        node: str,
        looked: Assessment | Failure,
        before: DriverRun | None,
        observe: Observer,
        cancel: threading.Event,
    ) -> NodeResult:
        """Converge, and once more where the node's program has not failed; ``before`` is its run before the swap."""
        result = NodeResult(node, Status.UNCHANGED)
        for _ in range(TRIES):
            if not isinstance(looked, Failure) and _leads_elsewhere(looked):
                looked = self._undone(node, looked.facts.driver, observe, cancel)
            if isinstance(looked, Failure):
                return _failed_with(result, looked)
            if (failed := _verdict(before, looked, result.failure)) is not None:
                return _failed_with(result, failed)
            expectation = self._expectation(node, render_mig(looked.facts, self.stacks[node]))
            released = replace(looked, expectation=expectation, is_out_of_service=True)
            result = _added(result, converge(self.context, node, released, observe, cancel))
            if result.failure is None or result.status is not Status.FAILED:
                return result
            looked = self._look(node, observe, cancel)
        if isinstance(looked, Failure):
            return _failed_with(result, looked)
        failed = _verdict(before, looked, result.failure)
        return (
            result
            if result.failure is None
            else _failed_with(result, failed or last_word(looked.facts, result.failure))
        )

    def _undone(
        self, node: str, before: DriverState, observe: Observer, cancel: threading.Event
    ) -> Assessment | Failure:
        """Go back from a change that is half done, as another one is declared by now; return what the node is then."""
        request, tries = self.context.playbooks.driver("back", node, before.to_undo), TRIES
        while True:
            said, tries = follow(self.context.runner, request, observe, cancel).failure, tries - 1
            if said is not None and said.status is not Status.FAILED:
                return said
            looked = self._look(node, observe, cancel)
            if isinstance(looked, Failure) or said is None:
                return looked
            failed = verdict(before.run, looked.facts.driver.run, said, good=GONE_BACK)
            if failed is not None or not _leads_elsewhere(looked):
                return failed or looked
            if not tries:
                return last_word(looked.facts, said)

    def _assessment(self, node: str, observe: Observer, cancel: threading.Event) -> Assessment | Failure:
        """Return what the plan was made from that a person has seen, the first time, and the node's present state then.

        Who held a GPU at that time has been asked to leave since; the release has found none.
        """
        known = self.known.pop(node, None)
        if known is None:
            looked = reassess(self.context, node, observe, cancel)
            return unheard(looked) if isinstance(looked, Failure) else looked
        return Assessment(msgspec.structs.replace(known.facts, device_holders=()), known.plan)

    def _look(self, node: str, observe: Observer, cancel: threading.Event) -> Assessment | Failure:
        """Return what a node is once its driver program is not at work."""
        looked = reassess(self.context, node, observe, cancel)
        return unheard(looked) if isinstance(looked, Failure) else self._at_rest(node, looked, observe, cancel)

    def _at_rest(
        self, node: str, looked: Assessment, observe: Observer, cancel: threading.Event
    ) -> Assessment | Failure:
        """Wait until the driver program is not at work on a node; return what the node is then."""
        if not is_running(looked.facts):
            return looked
        waited = wait_for_program(self.context, node, observe, cancel)
        after = waited or reassess(self.context, node, observe, cancel)
        return unheard(after) if isinstance(after, Failure) else after

    def _verify(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        if self._expectation(node, {}) is None:
            observe(Note(node, "verify: nothing to compare, the declaration has no driver"))
            return StepOutcome()
        if node in self.verified:
            self.verified.discard(node)
            return StepOutcome()
        mig = self._mig(node, observe, cancel)
        if isinstance(mig, Failure):
            return StepOutcome(failure=mig)
        variables = {"grapnel_expectation": self._expectation(node, mig)}
        return StepOutcome(failure=self._daemon(Phase.VERIFY, node, variables, observe, cancel).failure)

    def _mig(
        self, node: str, observe: Observer, cancel: threading.Event, *, as_it_is: bool = False
    ) -> dict[str, object] | Failure:
        """Return what is expected of the layout of a node's GPUs: which they are, only the node can tell."""
        if self.stacks[node].mig.layout is None:
            return {}
        looked = reassess(self.context, node, observe, cancel)
        return looked if isinstance(looked, Failure) else render_mig(looked.facts, self.stacks[node], as_it_is=as_it_is)

    def _expectation(self, node: str, mig: Mapping[str, object]) -> dict[str, object] | None:
        driver = self.stacks[node].driver
        return {**render_expectation(driver), **mig} if driver.enabled and driver.version is not None else None

    def _daemon(
        self, phase: Phase, node: str, variables: Mapping[str, object], observe: Observer, cancel: threading.Event
    ) -> Followed:
        request = self.context.playbooks.daemon(phase.value, node, variables)
        asks_only = phase is Phase.RELEASE  # it is asked again and again while a process holds a GPU
        for _ in range(TRIES):
            followed = follow(self.context.runner, request, observe, cancel, gathering=asks_only)
            if (
                followed.failure is None
                or followed.failure.status is not Status.FAILED
                or DAEMON_RESULT in followed.values
            ):
                break  # else it has not answered: who was to ask it may have been ended
        return followed


def render_expectation(driver: Driver) -> dict[str, object]:
    """Return what a node is to be verified against (docs/contracts/expectation): what the declaration knows of it.

    The rest (which GPUs, how they are divided and linked) is what the node remembers of itself from its release.
    """
    expectation: dict[str, object] = {"schema": EXPECTATION, "driverVersion": driver.version}
    if Capability.COMPUTE in driver.capabilities:
        expectation["allocation"] = True
    return expectation


def render_mig(facts: NodeFacts, stack: StackSpec, *, as_it_is: bool = False) -> dict[str, object]:
    """Return the key about MIG: the declared layout, which is not what GPUs had at their release if it is new."""
    mig = expected_mig(facts, stack, as_it_is=as_it_is)
    return {"mig": mig} if mig else {}


def is_verified(answer: bytes) -> bool:
    """Tell whether the node daemon answered that the driver is as expected; else it is asked again."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("ok") is True


def _leads_elsewhere(looked: Assessment) -> bool:
    """Tell whether an earlier change of the driver has not come to its end, and another one is declared by now."""
    run, driver = looked.facts.driver.run, looked.plan.roles.driver
    identifier = "" if driver is None else driver.driver_change_id
    return run is not None and bool(identifier) and run.is_other_than(identifier)


def _verdict(before: DriverRun | None, looked: Assessment, said: Failure | None) -> Failure | None:
    """Return with what failure the swap has ended that this step has begun, or one before that was cut off."""
    run, driver = looked.facts.driver.run, looked.plan.roles.driver
    if run is None or (run.verb or "swap") != "swap":
        return None
    if said is None and (driver is None or driver.driver_change_id != run.change):
        return None  # of another change
    return verdict(before, run, said)


def _failed_with(result: NodeResult, failure: Failure) -> NodeResult:
    return replace(result, status=failure.status, failure=failure)


def _added(former: NodeResult, result: NodeResult) -> NodeResult:
    """Return a result as that of both tries."""
    is_changed = former.passes and result.status is Status.UNCHANGED
    return replace(
        result,
        status=Status.CONVERGED if is_changed else result.status,
        passes=former.passes + result.passes,
        changes=former.changes + result.changes,
    )


def _failed(message: str) -> StepOutcome:
    return StepOutcome(failure=Failure(Status.FAILED, message))
