"""Brings one node to its declaration: apply the plan, gather facts, plan again, until the plan is empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from provision.apply.carried_out import count_by_plans, count_by_steps
from provision.apply.errors import CanceledError
from provision.apply.follow import AGAIN, failure_of, follow
from provision.apply.gate import find_obstacle, find_refusal, needs_drain, needs_staging, stages_engine
from provision.apply.gather import SILENT, facts_in, gather_facts
from provision.apply.model import Assessment, Failure, NodeResult, PassStarted, Staging, Status
from provision.apply.playbooks import DAEMON_RESULT
from provision.declaration.fleet.facts.node import NodeFacts
from provision.planning.node_plan import Roles
from provision.planning.planner.part import VERSION_NOT_CHOSEN

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.follow import Followed
    from provision.apply.model import Observer
    from provision.apply.runner import RunRequest
    from provision.planning.node_plan import NodePlan, Problem

MAX_PASSES = 3


@dataclass(slots=True)
class _Tally:
    """Counts what has been done to the node so far."""

    node: str
    expectation: Mapping[str, object] | None = None
    passes: int = 0
    changes: int = 0
    verification: bytes = b""
    is_out_of_service: bool = False

    def result(self, status: Status, failure: Failure | None = None) -> NodeResult:
        return NodeResult(self.node, status, self.passes, self.changes, failure, verification=self.verification)

    def failed(self, failure: Failure) -> NodeResult:
        return self.result(failure.status, failure)


def assess(
    context: ApplyContext, nodes: Iterable[str], observe: Observer, cancel: threading.Event
) -> dict[str, Assessment | Failure]:
    """Return facts and plan of every node, gathered in one run; changes nothing.

    Raises RunError when Ansible could not run at all, CanceledError when it was interrupted; what goes wrong on
    one node is its failure.
    """
    request = context.playbooks.facts(nodes)
    answers = {
        node: answer if isinstance(answer, Failure) else context.known(node, answer)
        for node, answer in gather_facts(context.runner, request, observe, cancel).items()
    }
    context.declarations.choose_versions(
        {node: answer for node, answer in answers.items() if not isinstance(answer, Failure)}
    )
    return {
        node: answer if isinstance(answer, Failure) else _plan(context, node, answer, cancel)
        for node, answer in answers.items()
    }


def _plan(context: ApplyContext, node: str, facts: NodeFacts, cancel: threading.Event) -> Assessment | Failure:
    try:
        plan = context.plan(node, facts, cancel)
        problem = context.declarations.problems.get(node)
        if problem is not None:
            plan = _without_version(plan, problem)
        return Assessment(facts, context.judged(plan, facts))
    except CanceledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
        return failure_of(error, f"planning {node}")


def _without_version(plan: NodePlan, problem: Problem) -> NodePlan:
    """Return the plan of a node for whose branch no version could be chosen, with why that is."""
    others = (each for each in plan.problems if each.code != VERSION_NOT_CHOSEN)
    return msgspec.structs.replace(plan, problems=(problem, *others), roles=Roles())


def converge(
    context: ApplyContext, node: str, assessment: Assessment, observe: Observer, cancel: threading.Event
) -> NodeResult:
    """Apply a node's plan until it is empty, at most ``MAX_PASSES`` times; failures and bugs are in the result.

    ``observe`` is called on this thread and raises nothing.
    """
    tally = _Tally(node, assessment.expectation, is_out_of_service=assessment.is_out_of_service)
    try:
        return _converge(context, tally, assessment, observe, cancel)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
        return tally.failed(failure_of(error, f"applying the plan of {node}"))


def _converge(
    context: ApplyContext, tally: _Tally, assessment: Assessment, observe: Observer, cancel: threading.Event
) -> NodeResult:
    while True:
        plan = assessment.plan
        refusal = find_obstacle(plan) if context.playbooks.check else find_refusal(assessment)
        if refusal is not None:
            return tally.failed(refusal)
        if plan.is_empty:
            return tally.result(Status.CONVERGED if tally.passes else Status.UNCHANGED)
        if tally.passes and needs_drain(plan) and not tally.is_out_of_service:
            return tally.failed(_left_over(plan, tally.passes))
        if tally.passes == MAX_PASSES or all(item.deferred for item in plan.items):
            return tally.failed(_left_over(plan, tally.passes))
        again = _apply(context, assessment, tally, observe, cancel)
        if again is None:
            return tally.result(Status.CHECKED)
        if isinstance(again, Failure):
            return tally.failed(again)
        if again.plan == plan:
            return tally.failed(_left_over(plan, tally.passes))
        assessment = again


def _apply(
    context: ApplyContext, assessment: Assessment, tally: _Tally, observe: Observer, cancel: threading.Event
) -> Assessment | Failure | None:
    """Apply a plan and return what the node is then, None in check mode, in which it stays as it was."""
    plan = assessment.plan
    if cancel.is_set():
        return Failure(Status.CANCELED, "not started" if not tally.passes else AGAIN)
    tally.passes += 1
    observe(PassStarted(plan.node, tally.passes, sum(not item.deferred for item in plan.items)))
    request = context.playbooks.apply(
        plan,
        tally.expectation,
        context.handover(assessment),
        context.engine_files(assessment),
        is_out_of_service=tally.is_out_of_service,
    )
    followed = follow(context.runner, request, observe, cancel)
    tally.verification = followed.values.get(DAEMON_RESULT, b"")
    is_over = followed.failure is not None or context.playbooks.check
    again = followed.failure if is_over else _assess_after(context, plan.node, followed, cancel)
    if isinstance(again, Assessment):
        tally.changes += count_by_plans(plan, again.plan)
    else:
        tally.changes += count_by_steps(plan.items, followed.changed)
    return again


def _assess_after(context: ApplyContext, node: str, run: Followed, cancel: threading.Event) -> Assessment | Failure:
    """Plan from the facts that a run ended with."""
    facts = facts_in(run.values, node)
    if not isinstance(facts, NodeFacts):
        return facts or Failure(Status.FAILED, SILENT)
    facts = context.known(node, facts)
    context.declarations.choose_versions({node: facts})  # its package source may be known only now
    return _plan(context, node, facts, cancel)


def stage(
    context: ApplyContext, node: str, assessment: Assessment, observe: Observer, cancel: threading.Event
) -> Assessment | Failure:
    """Stage driver and engine of a node's plan, and return what the node is then; ``observe`` raises nothing."""
    what = _staged_parts(assessment.plan)
    observe(Staging(node, what))
    try:
        staged = _stage(context, node, assessment, observe, cancel)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
        return failure_of(error, f"staging the {what} of {node}")
    if not isinstance(staged, Failure):
        observe(Staging(node, what, is_done=True))
    return staged


def _staged_parts(plan: NodePlan) -> str:
    """Return what is staged on a node, for people."""
    if not stages_engine(plan):
        return "driver"
    return "engine" if plan.roles.driver is None else "driver and engine"


def _stage(
    context: ApplyContext, node: str, assessment: Assessment, observe: Observer, cancel: threading.Event
) -> Assessment | Failure:
    """Stage until it is done: package sources may have to be known before there is anything to stage."""
    for _ in range(MAX_PASSES):
        if cancel.is_set():
            return Failure(Status.CANCELED, "not started")
        followed = follow(context.runner, _staging(context, assessment), observe, cancel)
        if followed.failure is not None or context.playbooks.check:
            return followed.failure or assessment
        again = _assess_after(context, node, followed, cancel)
        if isinstance(again, Failure):
            return again
        obstacle = find_obstacle(again.plan)
        if obstacle is not None or not needs_staging(again.plan):
            return obstacle or again
        assessment = again
    return _left_over(assessment.plan, MAX_PASSES)


def _staging(context: ApplyContext, assessment: Assessment) -> RunRequest:
    return context.playbooks.stage(assessment.plan, context.handover(assessment), context.engine_files(assessment))


def stage_once(
    context: ApplyContext, node: str, assessment: Assessment, observe: Observer, cancel: threading.Event
) -> Assessment | Failure:
    """Make one pass of staging, such as to write the package sources that all else is planned from."""
    observe(Staging(node))
    try:
        followed = follow(context.runner, _staging(context, assessment), observe, cancel)
        return followed.failure or _assess_after(context, node, followed, cancel)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
        return failure_of(error, f"staging the driver of {node}")


def reassess(context: ApplyContext, node: str, observe: Observer, cancel: threading.Event) -> Assessment | Failure:
    """Return one node's facts and plan, and whatever goes wrong as its failure; ``observe`` raises nothing."""
    try:
        answer = gather_facts(context.runner, context.playbooks.facts([node]), observe, cancel)[node]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
        return failure_of(error, f"gathering facts of {node}")
    return answer if isinstance(answer, Failure) else _plan(context, node, context.known(node, answer), cancel)


def _left_over(plan: NodePlan, passes: int) -> Failure:
    item = plan.items[0]
    more = f" and {len(plan.items) - 1} more" if len(plan.items) > 1 else ""
    times = "1 pass" if passes == 1 else f"{passes} passes"
    return Failure(Status.UNFINISHED, f"after {times}, still to do: {item.action} {item.target}{more} ({item.reason})")
