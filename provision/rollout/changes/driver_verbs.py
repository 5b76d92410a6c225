"""Returns nodes to their former driver, or takes parts of grapnel away, in the steps of a rollout."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from provision.apply.follow import follow
from provision.apply.model import Failure, NodeFinished, NodeResult, Status
from provision.apply.removal import NodeRemoval
from provision.declaration.spec.model import Mig
from provision.rollout.changes.plan import NO_DRIVER, DriverVerb, may_end_without_driver
from provision.rollout.changes.removing import Removing
from provision.rollout.decision.outcome import results_of
from provision.rollout.engine import Engine
from provision.rollout.execution import refuse_if_changed
from provision.rollout.model import Phase
from provision.rollout.returns import forget_removed
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_program import GONE_BACK, TRIES, last_word, settled_facts
from provision.rollout.steps.node_steps import NodeSteps
from provision.rollout.steps.way_back import loaded_version

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.rollout.adapters import Adapters
    from provision.rollout.changes.plan import AnyVerb, VerbPlan
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.model import Origin


@dataclass(frozen=True, slots=True)
class VerbSteps:
    """Runs the steps on a node as ``NodeSteps`` does, but for the change of the driver.

    ``undone`` are the changes that the way back leads away from, by node, ``foreseen`` what a plan shows of each.
    ``asked`` are nodes whose program was called, and it is not known what became of that. Without a driver afterwards
    there is nothing to verify, and no GPU to offer.
    """

    steps: NodeSteps
    verb: AnyVerb
    targets: Mapping[str, str]
    undone: Mapping[str, str]
    foreseen: Mapping[str, NodeRemoval | Failure] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

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
        """Change the driver first: what is taken away with the rest watches over it."""
        context, failure = self.steps.context, None
        if may_end_without_driver(self.verb):
            failure = self._drive(node, observe, cancel)
        if failure is None and isinstance(self.verb, Removing) and self.verb.others:
            request = context.playbooks.remove(self.verb.others, (node,))
            failure = follow(context.runner, request, observe, cancel).failure
        found = self.foreseen.get(node)
        # How far a change came that failed is not known: nothing is said of it, not that nothing was changed.
        done = found.steps if failure is None and isinstance(found, NodeRemoval) else None
        result = NodeResult(node, self.verb.status, int(done is not None), len(done or ()), failure)
        return StepOutcome(failure=failure, swapped=result)

    def _drive(self, node: str, observe: Observer, cancel: threading.Event) -> Failure | None:
        """Have the driver changed; return why it was not.

        Whoever calls the node's program may be ended in the middle of it, so that its end was not heard.
        The node is looked at then, before it is called again: a second way back would lead further.
        """
        context, said, tries = self.steps.context, None, TRIES
        request = context.playbooks.driver(self.verb.value, node, self.undone.get(node, ""))
        while True:
            if node in self.asked:
                facts = settled_facts(context, node, observe, cancel)
                if isinstance(facts, Failure):
                    return facts
                if self._is_there(node, facts):
                    self.asked.discard(node)
                    return None
                if said is not None and (not tries or self._has_failed(facts)):
                    return last_word(facts, said)
            self.asked.add(node)
            said, tries = follow(context.runner, request, observe, cancel).failure, tries - 1
            if said is None:
                self.asked.discard(node)
            if said is None or said.status is not Status.FAILED:
                return said

    def _is_there(self, node: str, facts: NodeFacts) -> bool:
        """Tell whether the driver is what it was to become."""
        run = facts.driver.run
        if self.verb is not DriverVerb.BACK:
            return not facts.driver.managed
        is_over = run is not None and run.verb == self.verb.value and run.state in GONE_BACK
        return is_over and loaded_version(facts) == self.targets[node]

    def _has_failed(self, facts: NodeFacts) -> bool:
        """Tell whether the node's program says that it could not do it."""
        run = facts.driver.run
        return run is not None and run.verb == self.verb.value and run.state in {"failed", "quarantined"}


def verb_steps(context: ApplyContext, stacks: Mapping[str, StackSpec], plan: VerbPlan) -> VerbSteps:
    """Return the steps of a plan, in which every node is verified against what it has afterwards."""
    expected = {name: with_driver(stacks[name], version) for name, version in plan.targets.items()}
    return VerbSteps(NodeSteps(context, expected), plan.verb, plan.targets, plan.undone, plan.foreseen)


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
        results |= results_of(ending, prepared.rollout, canceled=cancel.is_set(), command=plan.verb.command)
    told = tuple(_told(plan, result, observe) for result in results.values())
    if isinstance(plan.verb, Removing) and not cancel.is_set():
        forget_removed(adapters.cluster, _given_back(plan.verb, told), observe, holder)
    return told


def _given_back(verb: Removing, results: Iterable[NodeResult]) -> list[str]:
    """Return the nodes that have nothing any more of what was taken away; their records are about nothing."""
    gone = (Status.REMOVED, Status.UNCHANGED) if verb.has_driver else (Status.REMOVED,)
    return [result.node for result in results if result.status in gone]


def _told(plan: Planned, result: NodeResult, observe: RolloutObserver) -> NodeResult:
    is_good = result.status in (Status.CONVERGED, Status.UNCHANGED) and result.node not in plan.settled
    if is_good or (result.status is plan.verb.status is Status.RETURNED):
        result = replace(result, status=plan.verb.status, failure=None)
    observe(NodeFinished(result))
    return result
