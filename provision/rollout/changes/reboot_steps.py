"""Runs the steps of a reboot on a node: those of a driver change, but for what is done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.apply.follow import follow
from provision.apply.model import Failure, NodeResult, Status
from provision.apply.playbooks import is_boot
from provision.rollout.changes.driver_verbs import with_driver
from provision.rollout.model import Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.node_program import TRIES
from provision.rollout.steps.node_steps import NodeSteps

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.declaration.spec.model import StackSpec
    from provision.rollout.changes.reboot_plan import RebootPlan
    from provision.rollout.model import Origin


@dataclass(frozen=True, slots=True)
class RebootSteps:
    """Reboots nodes that are still in ``boots``, by node. ``steps`` verify each against what it had before."""

    steps: NodeSteps
    boots: Mapping[str, str]

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Do what the phase is about; doing it again does no harm."""
        if phase is Phase.SWAP:
            return self._reboot(node, observe, cancel)
        return self.steps.run(node, phase, observe, cancel, back)

    def _reboot(self, node: str, observe: Observer, cancel: threading.Event) -> StepOutcome:
        """Reboot it unless that has happened: a boot that has ended does not come again, whoever ended it."""
        context = self.steps.context
        if not is_boot(self.boots[node]):
            return StepOutcome(failure=Failure(Status.FAILED, "its record does not say which boot is to end"))
        for _ in range(TRIES):  # a process that was ended says nothing of the node, and what has happened is seen
            followed = follow(context.runner, context.playbooks.reboot(node, self.boots[node]), observe, cancel)
            if followed.failure is None or followed.failure.status is not Status.FAILED:
                break
        result = NodeResult(node, Status.REBOOTED, 1, followed.changes, followed.failure)
        return StepOutcome(failure=followed.failure, swapped=result)


def reboot_steps(context: ApplyContext, stacks: Mapping[str, StackSpec], plan: RebootPlan) -> RebootSteps:
    """Return the steps of a plan."""
    states = plan.prepared.states
    expected = {state.name: with_driver(stacks[state.name], state.target) for state in states}
    return RebootSteps(NodeSteps(context, expected), {state.name: state.boot for state in states})
