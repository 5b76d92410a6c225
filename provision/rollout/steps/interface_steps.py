"""Has nodes give their GPUs to pods by another interface of Kubernetes, while their pods go on.

The daemon on the node withholds what pods have by the former interface. So nothing is drained. A change is proven by
the node itself: its kubelet took what is offered, or the API has the slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.apply.converge import converge, reassess
from provision.apply.follow import follow
from provision.apply.gate import will_need_drain
from provision.apply.model import Failure, NodeResult, Status
from provision.rollout.model import Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_program import TRIES, unheard

if TYPE_CHECKING:
    import threading

    from provision.apply.model import Assessment, Observer
    from provision.declaration.spec.model import GpuInterface
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import Origin
    from provision.rollout.steps.node_steps import NodeSteps


@dataclass(frozen=True, slots=True)
class InterfaceSteps:
    """Changes the nodes ``changing`` over, and has ``steps`` run those of all others."""

    steps: NodeSteps
    changing: frozenset[str]

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Do what the phase is about; doing it again does no harm. The way back leads to the interface before."""
        if node not in self.changing:
            return self.steps.run(node, phase, observe, cancel, back)
        interface = None if back is None else back.interface
        if phase is Phase.VERIFY:
            return StepOutcome(failure=self._look(node, observe, cancel))
        return self._change(node, interface, observe, cancel)

    def _change(
        self, node: str, interface: GpuInterface | None, observe: Observer, cancel: threading.Event
    ) -> StepOutcome:
        """Bring the node to its declaration, with another ``interface`` where one is given; once more if that fails.

        Who carries it out may be ended in the middle of it, and says nothing of the node then.
        """
        context, known = self.steps.context, self.steps.known.pop(node, None)
        result = NodeResult(node, Status.UNCHANGED)
        with context.declarations.with_interface(node, interface):
            for _ in range(TRIES):
                looked = known if known is not None and interface is None else reassess(context, node, observe, cancel)
                known = None
                if isinstance(looked, Failure):
                    return StepOutcome(failure=unheard(looked))
                if failure := _needs_more(looked):
                    return StepOutcome(failure=failure)
                result = converge(context, node, looked, observe, cancel)
                if result.failure is None or result.status is not Status.FAILED:
                    break
        return StepOutcome(failure=result.failure, swapped=result if interface is None else None)

    def _look(self, node: str, observe: Observer, cancel: threading.Event) -> Failure | None:
        """Wait until pods can be given GPUs as the node is configured by now; return why they cannot."""
        context = self.steps.context
        request = context.playbooks.daemon("offered", node, {})
        followed = follow(context.runner, request, observe, cancel)
        if followed.failure is not None and followed.failure.status is Status.FAILED and not followed.values:
            followed = follow(context.runner, request, observe, cancel)  # it has not answered: who asked may be gone
        return followed.failure


def _needs_more(looked: Assessment) -> Failure | None:
    """Return that what is declared by now cannot be done while the node serves."""
    if not will_need_drain(looked.plan):
        return None
    return Failure(Status.FAILED, "what is declared by now takes the node out of service: apply again")


def apply_steps(steps: NodeSteps, prepared: Prepared) -> InterfaceSteps:
    """Return the steps of an apply; a node that is on its way back to an interface is no other's."""
    return InterfaceSteps(steps, frozenset(state.name for state in prepared.states if _changes_over(state)))


def _changes_over(state: NodeState) -> bool:
    record = state.record if state.is_in_flight else None
    return state.kind.is_in_place or (record is not None and record.kind.is_in_place and record.is_returning)
