"""Runs the steps on a node, as playbooks of the collection."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.apply.converge import converge, reassess
from provision.apply.follow import Followed, follow
from provision.apply.model import Assessment, Failure, Note, Status
from provision.apply.playbooks import DAEMON_RESULT
from provision.fleet.errors import AnswerError
from provision.fleet.release_result import parse_release_result
from provision.rollout.decision.snapshot import Holder
from provision.rollout.model import Phase
from provision.rollout.step import StepOutcome
from provision.rollout.way_back import WayBack
from provision.spec.model import Capability, Processes

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.fleet.facts import NodeFacts
    from provision.rollout.model import Origin
    from provision.spec.model import Driver, StackSpec

EXPECTATION: Final = "grapnel.dev/expectation/v1alpha1"


@dataclass(frozen=True, slots=True)
class NodeSteps:
    """Runs steps through the context of an apply; ``stacks`` are the nodes' declarations.

    ``known`` are assessments that a swap may start from, each used once; ``verified`` are nodes whose driver was
    verified by the run that swapped it, so that it need not be done twice.

    A node without a daemon is asked as well: the collection itself then finds who holds a GPU, and what is loaded.
    """

    context: ApplyContext
    stacks: Mapping[str, StackSpec]
    known: dict[str, Assessment] = field(default_factory=dict)
    verified: set[str] = field(default_factory=set)

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Do what the phase is about; doing it again does no harm."""
        if back is not None:
            return self._run_back(node, phase, observe, cancel, back)
        if phase is Phase.RELEASE:
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
        """Bring the node to its declaration, and verify its driver in the same run."""
        looked = self._assessment(node, observe, cancel)
        if not isinstance(looked, Failure) and _leads_elsewhere(looked):
            looked = self._undone(node, observe, cancel)
        if isinstance(looked, Failure):
            return StepOutcome(failure=looked)
        expectation = self._expectation(node, render_mig(looked.facts, self.stacks[node]))
        released = replace(looked, expectation=expectation, is_out_of_service=True)
        result = converge(self.context, node, released, observe, cancel)
        if is_verified(result.verification):
            self.verified.add(node)
        return StepOutcome(failure=result.failure, swapped=result)

    def _undone(self, node: str, observe: Observer, cancel: threading.Event) -> Assessment | Failure:
        """Go back from a change that is half done, as another one is declared by now; return what the node is then."""
        followed = follow(self.context.runner, self.context.playbooks.driver("back", node), observe, cancel)
        return followed.failure or reassess(self.context, node, observe, cancel)

    def _assessment(self, node: str, observe: Observer, cancel: threading.Event) -> Assessment | Failure:
        """Return what the plan was made from that a person has seen, the first time, and the node's present state then.

        Who held a GPU at that time has been asked to leave since; the release has found nobody.
        """
        known = self.known.pop(node, None)
        if known is None:
            return reassess(self.context, node, observe, cancel)
        return Assessment(msgspec.structs.replace(known.facts, device_holders=()), known.plan)

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
        asks_only = phase is Phase.RELEASE  # it is asked again and again while somebody holds a GPU
        return follow(self.context.runner, request, observe, cancel, gathering=asks_only)


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
    from provision.planner.mig import expected_mig  # noqa: PLC0415 - start-up time

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


def _failed(message: str) -> StepOutcome:
    return StepOutcome(failure=Failure(Status.FAILED, message))
