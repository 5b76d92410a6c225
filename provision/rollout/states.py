"""Says what is known of a node after it was observed, or something was done to it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.apply.model import Status
from provision.rollout.cluster import NodeProblem
from provision.rollout.decision.snapshot import StepResult, changed
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import NodeView, Record
    from provision.rollout.step import StepOutcome


def seen(node: NodeState, view: NodeView | NodeProblem, obstacle: str, now: datetime) -> NodeState:
    """Return the node as it was observed ``now``; ``obstacle`` is the one that it had before the rollout."""
    if isinstance(view, NodeProblem):
        return changed(
            node,
            view=replace(node.view, is_ready=False, gpu_pods=()),
            obstacle=obstacle or view.message,
            is_missing=True,
            lost_since=node.lost_since or now,
        )
    if not node.is_missing:
        return changed(node, view=view, obstacle=obstacle)
    is_over = view.record is not None and view.record.phase.is_over
    return changed(  # it is there again: what was given up meanwhile goes on
        node,
        view=view,
        obstacle=obstacle,
        is_missing=False,
        lost_since=None,
        has_failed=node.has_failed and is_over,
    )


def entered(node: NodeState, record: Record) -> NodeState:
    """Return the node after its record was written."""
    return changed(
        node,
        view=replace(node.view, record=record),
        has_failed=record.phase.is_over and record.has_failed and record.target == node.target,
        is_disruptive=node.is_disruptive and record.phase is not Phase.DONE,
        step=None,
        blocked={},
    )


def stepped(node: NodeState, phase: Phase, outcome: StepOutcome, ended: datetime) -> NodeState:
    """Return the node after a step on it has come to its end."""
    failure = outcome.failure
    step = StepResult(
        phase=phase,
        ended=ended,
        is_done=failure is None and not outcome.holders,
        failure="" if failure is None else failure.message,
        is_unreachable=failure is not None and failure.status is Status.UNREACHABLE,
        holders=outcome.holders,
    )
    is_swapped = step.is_done and phase is Phase.SWAP
    is_back = step.is_done and phase is Phase.ROLLBACK
    return changed(
        node,
        is_busy=False,
        step=step,
        is_disruptive=(node.is_disruptive and not is_swapped) or is_back,
        is_as_declared=(node.is_as_declared or is_swapped) and not is_back,
        lost_since=(node.lost_since or step.ended) if step.is_unreachable or node.is_missing else None,
    )
