"""Returns nodes to their former driver, or takes parts of grapnel away, in the steps of a rollout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from provision.apply.follow import follow
from provision.apply.model import NodeFinished, NodeResult, Status
from provision.rollout.decision.outcome import results_of
from provision.rollout.engine import Engine
from provision.rollout.execution import refuse_if_changed
from provision.rollout.model import Phase
from provision.rollout.node_steps import NodeSteps
from provision.rollout.removing import Removing
from provision.rollout.step import StepOutcome
from provision.rollout.verb_plan import NO_DRIVER, may_end_without_driver
from provision.spec.model import Mig

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.rollout.adapters import Adapters
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.model import Origin
    from provision.rollout.progress import RolloutObserver
    from provision.rollout.verb_plan import AnyVerb, VerbPlan
    from provision.runner import RunRequest
    from provision.spec.model import StackSpec


@dataclass(frozen=True, slots=True)
class VerbSteps:
    """Runs the steps on a node as ``NodeSteps`` does, but for the change of the driver.

    Without a driver afterwards there is nothing to verify, and no GPU to offer.
    """

    steps: NodeSteps
    verb: AnyVerb
    targets: Mapping[str, str]

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Do what the phase is about; doing it again does no harm."""
        if back is not None:  # the way back of an apply that was cut short
            return self.steps.run(node, phase, observe, cancel, back)
        if phase is Phase.SWAP:
            return self._change(node, observe, cancel)
        without = (Phase.VERIFY, Phase.RESUME) if may_end_without_driver(self.verb) else (Phase.VERIFY,)
        if self.targets[node] == NO_DRIVER and phase in without:
            return StepOutcome()
        return self.steps.run(node, phase, observe, cancel)

    def _change(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        changes = 0
        for request in self._requests(node):
            followed = follow(self.steps.context.runner, request, observe, cancel)
            changes += followed.changes
            if followed.failure is not None:
                break
        result = NodeResult(node, self.verb.status, 1, changes, followed.failure)
        return StepOutcome(failure=followed.failure, swapped=result)

    def _requests(self, node: str) -> Iterator[RunRequest]:
        """Return what is run on a node, the driver first: what is taken away with the rest watches over it."""
        playbooks = self.steps.context.playbooks
        if may_end_without_driver(self.verb):
            yield playbooks.driver(self.verb.value, node)
        if isinstance(self.verb, Removing) and self.verb.others:
            yield playbooks.remove(self.verb.others, (node,))


def verb_steps(context: ApplyContext, stacks: Mapping[str, StackSpec], plan: VerbPlan) -> VerbSteps:
    """Return the steps of a plan, in which every node is verified against what it has afterwards."""
    expected = {name: with_driver(stacks[name], version) for name, version in plan.targets.items()}
    return VerbSteps(NodeSteps(context, expected), plan.verb, plan.targets)


def with_driver(stack: StackSpec, version: str) -> StackSpec:
    """Return a declaration of that driver, or of none where there is no version; of nothing else on the node."""
    driver = msgspec.structs.replace(stack.driver, enabled=bool(version), version=version or None, branch=None)
    return msgspec.structs.replace(stack, driver=driver, mig=Mig())


class Verb(Protocol):
    """A verb that takes nodes out of service, as messages and results call it."""

    @property
    def command(self) -> str:
        """The command of grapnel that does it."""

    @property
    def status(self) -> Status:
        """What becomes of a node with which it went well."""


class Planned(Protocol):
    """What a verb comes to: the nodes that go through the rollout, and the results of those that do not."""

    @property
    def verb(self) -> Verb:
        """What is carried out."""

    @property
    def prepared(self) -> Prepared:
        """The nodes, in their order."""

    @property
    def settled(self) -> Mapping[str, NodeResult]:
        """The results of nodes that need not be, or cannot be, taken out of service."""


def execute_verb(
    plan: Planned, adapters: Adapters, observe: RolloutObserver, *, cancel: threading.Event, holder: str
) -> tuple[NodeResult, ...]:
    """Carry a verb out on the nodes that it is for; return the result of every node.

    Raises HeldError when another engine is at work.
    """
    prepared, results = plan.prepared, dict(plan.settled)
    if prepared.rollout:
        with adapters.cluster.lease(holder):
            refuse_if_changed(adapters.cluster, prepared)
            engine = Engine(adapters, prepared.states, prepared.policy, observe=observe, cancel=cancel)
            ending = engine.run()
        canceled = cancel.is_set() and not ending.stop
        results |= results_of(ending, prepared.rollout, canceled=canceled, command=plan.verb.command)
    return tuple(_told(plan, result, observe) for result in results.values())


def _told(plan: Planned, result: NodeResult, observe: RolloutObserver) -> NodeResult:
    if result.status is Status.CONVERGED or (result.status is plan.verb.status is Status.RETURNED):
        result = replace(result, status=plan.verb.status, failure=None)
    observe(NodeFinished(result))
    return result
