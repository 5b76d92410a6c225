"""Runs the steps on a node, as playbooks of the collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.apply.converge import converge, reassess
from provision.apply.follow import Followed, follow
from provision.apply.model import Failure, Note, Status
from provision.apply.playbooks import DAEMON_RESULT
from provision.fleet.errors import AnswerError
from provision.fleet.release_result import parse_release_result
from provision.rollout.decision.snapshot import Holder
from provision.rollout.model import Phase
from provision.rollout.step import StepOutcome
from provision.spec.model import Capability

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.spec.model import Driver, StackSpec

EXPECTATION: Final = "grapnel.dev/expectation/v1alpha1"


@dataclass(frozen=True, slots=True)
class NodeSteps:
    """Runs steps through the context of an apply; ``stacks`` are the nodes' declarations.

    A node without a daemon is asked as well: the collection itself then finds who holds a GPU, and what is loaded.
    """

    context: ApplyContext
    stacks: Mapping[str, StackSpec]

    def run(self, node: str, phase: Phase, observe: Observer, cancel: threading.Event) -> StepOutcome:
        """Do what the phase is about; doing it again does no harm."""
        if phase is Phase.RELEASE:
            return self._release(node, observe, cancel)
        if phase is Phase.SWAP:
            return self._swap(node, observe, cancel)
        if phase is Phase.VERIFY:
            return self._verify(node, observe, cancel)
        return StepOutcome(failure=self._daemon(phase, node, {}, observe, cancel).failure)

    def _release(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        followed = self._daemon(Phase.RELEASE, node, {}, observe, cancel)
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
        """Gather facts again, as the node has changed since it was planned for, and bring it to its declaration."""
        looked = reassess(self.context, node, observe, cancel)
        if isinstance(looked, Failure):
            return StepOutcome(failure=looked)
        result = converge(self.context, node, looked, observe, cancel)
        return StepOutcome(failure=result.failure, swapped=result)

    def _verify(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        driver = self.stacks[node].driver
        if not driver.enabled or driver.version is None:
            observe(Note(node, "verify: nothing to compare, the declaration has no driver"))
            return StepOutcome()
        variables = {"grapnel_expectation": render_expectation(driver)}
        return StepOutcome(failure=self._daemon(Phase.VERIFY, node, variables, observe, cancel).failure)

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


def _failed(message: str) -> StepOutcome:
    return StepOutcome(failure=Failure(Status.FAILED, message))
