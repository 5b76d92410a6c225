"""Says what is known of a node after it was observed, or something was done to it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.apply.model import Status
from provision.rollout.decision.snapshot import StepResult, changed
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import NodeView, Record
    from provision.rollout.step import StepOutcome

_UNKNOWN: Final = (Status.UNREACHABLE, Status.CANCELED)  # what became of the node; who ends a rollout decides no more
REPLACED: Final = (
    "is another machine than when this run began: its Node was deleted and registered again. What was under way on the "
    "former one ended with it; the next run plans this one by its own facts"
)


def seen(node: NodeState, view: NodeView | NodeProblem, obstacle: str, now: datetime) -> NodeState:
    """Return the node as it was observed ``now``; ``obstacle`` is the one that it had before the rollout."""
    if not isinstance(view, NodeProblem):
        node, view = _recognized(node, view)
    obstacle = REPLACED if node.is_replaced else obstacle
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


def _recognized(node: NodeState, view: NodeView) -> tuple[NodeState, NodeView]:
    """Return the node and its view after its object was deleted and registered again, if it was.

    The records of an object end with it. Of the same machine what was under way goes on, and what came of it still
    counts: both are written down again. Of another one nothing that was known is true any more.
    """
    before = node.view
    if node.is_unwritten and view.record is None:
        return node, _with_record(view, before.record)
    if not before.uid or not view.uid or before.uid == view.uid:
        return replace(node, is_unwritten=False) if node.is_unwritten else node, view
    is_same = bool(view.machine_id) and view.machine_id == before.machine_id
    if not is_same:
        return replace(node, is_replaced=True, step=None, blocked={}), view
    if before.record is None or view.record is not None:
        return node, view
    if before.record.phase.is_in_service and not (node.has_failed or (node.is_changed and not node.wants_to_begin)):
        return node, view
    return replace(node, is_unwritten=True), _with_record(view, before.record)


def _with_record(view: NodeView, record: Record | None) -> NodeView:
    """Return a new object with the record of the former one: a cordon that it has is not ours, and the only one."""
    return view if record is None else replace(view, record=replace(record, was_cordoned=view.is_cordoned))


def entered(node: NodeState, record: Record) -> NodeState:
    """Return the node after its record was written."""
    if node.is_unwritten and record == node.record:  # again, as nothing has happened
        return changed(node, is_unwritten=False)
    return changed(
        node,
        view=replace(node.view, record=record),
        has_failed=record.phase.is_over and record.has_failed and record.target == node.target,
        is_disruptive=node.is_disruptive and record.phase is not Phase.DONE,
        step=None,
        blocked={},
        is_unwritten=False,
        is_half_done=node.is_half_done and not record.phase.is_in_service,
    )


def stepped(node: NodeState, phase: Phase, outcome: StepOutcome, ended: datetime) -> NodeState:
    """Return the node after a step on it has come to its end."""
    failure = outcome.failure
    step = StepResult(
        phase=phase,
        ended=ended,
        is_done=failure is None and not outcome.holders,
        failure="" if failure is None else failure.message,
        is_unreachable=failure is not None and failure.status in _UNKNOWN,
        holders=outcome.holders,
    )
    is_swapped = step.is_done and phase is Phase.SWAP
    is_back = step.is_done and phase is Phase.ROLLBACK
    is_offering = step.is_done and phase is Phase.RESUME
    return changed(
        node,
        is_busy=False,
        step=step,
        is_disruptive=(node.is_disruptive and not is_swapped) or is_back,
        is_as_declared=(node.is_as_declared or is_swapped) and not is_back,
        is_released=(node.is_released or phase is Phase.RELEASE) and not is_offering,
        lost_since=(node.lost_since or step.ended) if step.is_unreachable or node.is_missing else None,
    )
