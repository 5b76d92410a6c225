"""Runs a whole apply: first the nodes that are changed in place, then the rollout, then the RuntimeClasses."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeGuard

from provision.apply.fleet import apply_all, settled, stage_all
from provision.apply.gate import exchanges_engine, find_obstacle, needs_turn, stages_engine
from provision.apply.model import Assessment, Failure, NodeFinished, NodeResult, Note, Status
from provision.apply.supply.builders import provide_modules
from provision.apply.supply.kinds import Kinds, sharing_nodes
from provision.base.errors import GrapnelError
from provision.declaration.spec.text.excerpt import few
from provision.rollout.decision.outcome import results_of
from provision.rollout.decision.prepare import runtime_classes
from provision.rollout.engine import Engine
from provision.rollout.errors import ClusterError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.node_marks import declared_marks
from provision.rollout.returns import forget_returns

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterator, Mapping

    from provision.apply.context import ApplyContext
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import DriverVariables
    from provision.rollout.adapters import Adapters
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.model import NodeView, Record


_CONFLICT: Final = "take it off the Node by hand, or declare the value that it has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An apply that is ready to run: what it does, and through what.

    ``known`` are assessments that the swap of a node may start from; staging a node renews its own.
    """

    context: ApplyContext
    adapters: Adapters
    prepared: Prepared
    answers: Mapping[str, Assessment | Failure]
    stacks: Mapping[str, StackSpec]
    known: dict[str, Assessment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of every node, in the inventory's order, and what else went wrong."""

    results: tuple[NodeResult, ...]
    complaints: tuple[GrapnelError, ...] = ()


def execute(job: Job, observe: RolloutObserver, *, parallel: int, cancel: threading.Event, holder: str) -> ApplyResult:
    """Change what differs. ``holder`` is who has the lease while nodes are taken out of service.

    In check mode the cluster is left alone. Raises HeldError when another engine is at work.
    """
    if job.context.playbooks.check:
        return ApplyResult(_in_order(job, _in_place(job, job.prepared.todo, observe, parallel, cancel)))
    with _lease(job, holder):
        sharing = sharing_nodes(job.context, job.answers, job.prepared.in_place)
        changed = _in_place(
            job, [node for node in job.prepared.in_place if node not in sharing], observe, parallel, cancel
        )
        job = _share(job, (*sharing, *job.prepared.staging), observe, parallel, cancel)
        for node in sharing:
            if (ended := settled(node, job.answers[node])) is not None:  # while it was staged for others
                observe(NodeFinished(ended))
        changed |= _in_place(job, sharing, observe, parallel, cancel)
        unstaged = _stage(job, job.prepared.staging, observe, parallel, cancel)
        rolled = _roll_out(job, unstaged, observe, cancel)
        turned = [node for node, result in rolled.items() if _can_be_changed_in_place(job, result)]
        for node, result in rolled.items():
            if node not in turned:
                observe(NodeFinished(result))
        changed |= unstaged | rolled | _in_place(job, turned, observe, parallel, cancel)
        results = _in_order(job, changed)
        if job.adapters.instructions.is_outdated:
            return ApplyResult(results)
        forget_returns(job.adapters.cluster, job.prepared, results, observe, holder)
        complaints = (*ensure_runtime_classes(job, results, observe), *set_marks(job, results, observe))
        return ApplyResult(results, (*complaints, *set_tenancy(job, observe)))


@contextlib.contextmanager
def _lease(job: Job, holder: str) -> Iterator[None]:
    """Keep other engines away from nodes that are taken out of service; what is changed in place needs no cluster."""
    if not job.prepared.rollout:
        yield
        return
    with job.adapters.cluster.lease(holder):
        refuse_if_changed(job.adapters.cluster, job.prepared)
        yield


def _in_place(
    job: Job, nodes: Collection[str], observe: RolloutObserver, parallel: int, cancel: threading.Event
) -> dict[str, NodeResult]:
    answers = {node: job.answers[node] for node in nodes}
    if not answers:
        return {}
    if not job.context.playbooks.check:
        job.adapters.cluster.withdraw_claims(tuple(answers))
    results = apply_all(job.context, answers, observe, parallel=parallel, cancel=cancel)
    return {result.node: result for result in results}


def stage_nodes(
    job: Job, observe: RolloutObserver, *, parallel: int, cancel: threading.Event
) -> tuple[NodeResult, ...]:
    """Stage the drivers and engines that the plans need, and change nothing that runs; return every node's result.

    A node on which they are staged already, or whose plan has nothing to stage, is left alone.
    """
    concerned = [node for node, answer in job.answers.items() if _needs_a_stage(answer)]
    staging = [node for node in concerned if _is_unstaged(job.answers[node])]
    job = _share(job, staging, observe, parallel, cancel)
    unstaged = _stage(job, staging, observe, parallel, cancel)
    staged = {
        node: NodeResult(node, Status.STAGED, note=_note(job, node)) for node in concerned if node not in unstaged
    }
    for result in staged.values():
        observe(NodeFinished(result))
    return _in_order(job, {**staged, **unstaged})


def _share(job: Job, nodes: Collection[str], observe: RolloutObserver, parallel: int, cancel: threading.Event) -> Job:
    """Have modules built for all that several nodes need; return the job with what those nodes are then."""
    kinds = Kinds(job.context, dict(job.answers), frozenset(nodes))
    answers = provide_modules(job.context, kinds, observe, parallel=parallel, cancel=cancel)
    return replace(job, answers={**job.answers, **answers})


def _note(job: Job, node: str) -> str:
    """Return what staging took on a node, and where its module comes from; empty for one that was staged before."""
    staged = job.known.get(node)
    if staged is None:
        return ""
    engine, ready = exchanges_engine(staged.plan), staged.facts.engine_staged
    packages = f"{ready.bytes / 1e6:.0f} MB of its engine" if engine and ready is not None else ""
    return ", ".join(filter(None, (_driver_note(job, node, staged), packages)))


def _driver_note(job: Job, node: str, staged: Assessment) -> str:
    driver = staged.plan.roles.driver
    if driver is None:
        return ""
    found = [each.cost for each in staged.facts.driver.staged if each.id == driver.driver_change_id]
    if not found:
        return ""
    built = f", built with {found[0].cpu_s:.0f} s of CPU" if found[0].build_s else ""
    modules = [job.context.built[build] for build in job.context.builds(staged) if build in job.context.built]
    others = sorted({name for module in modules for name in module.nodes} - {node})
    shared = f", module built by {few(others)}" if others and not built else ""
    return f"{found[0].bytes / 1e6:.0f} MB{built}{shared}"


def _is_unstaged(answer: Assessment | Failure) -> bool:
    """Tell whether there is something to stage, or will be once the node knows its package sources."""
    driver = _driver_of(answer)
    if driver is not None and (driver.driver_stage or (driver.driver_change is None and bool(driver.driver_sources))):
        return True
    return _is_ready(answer) and stages_engine(answer.plan)


def _needs_a_stage(answer: Assessment | Failure) -> bool:
    """Tell whether a plan has anything that is staged before it is exchanged."""
    return _driver_of(answer) is not None or (_is_ready(answer) and exchanges_engine(answer.plan))


def _is_ready(answer: Assessment | Failure) -> TypeGuard[Assessment]:
    return isinstance(answer, Assessment) and find_obstacle(answer.plan) is None


def _driver_of(answer: Assessment | Failure) -> DriverVariables | None:
    """Return what a plan has about the driver, None where nothing is to be done, or can be."""
    return answer.plan.roles.driver if _is_ready(answer) else None


def _stage(
    job: Job, nodes: Collection[str], observe: RolloutObserver, parallel: int, cancel: threading.Event
) -> dict[str, NodeResult]:
    """Stage drivers and engines of nodes in use; return the nodes on which that failed: they stay in service."""
    todo: dict[str, Assessment] = {}
    ended: dict[str, Assessment | Failure] = {}
    for node in nodes:
        answer = _ready(job.answers[node])
        if isinstance(answer, Assessment) and _is_unstaged(answer):
            todo[node] = answer
        else:  # it was staged for others, or could not be
            ended[node] = answer
    if todo:
        ended |= stage_all(job.context, todo, observe, parallel=parallel, cancel=cancel)
    unstaged = {}
    for node, answer in ended.items():
        if isinstance(answer, Failure):
            unstaged[node] = NodeResult(node, answer.status, failure=answer)
            observe(NodeFinished(unstaged[node]))
        else:
            job.known[node] = answer
    return unstaged


def _ready(answer: Assessment | Failure) -> Assessment | Failure:
    """Return a node's state, or what is in the way of its plan."""
    return answer if isinstance(answer, Failure) else find_obstacle(answer.plan) or answer


def _roll_out(
    job: Job, unstaged: Mapping[str, NodeResult], observe: RolloutObserver, cancel: threading.Event
) -> dict[str, NodeResult]:
    prepared = job.prepared
    nodes = [node for node in prepared.rollout if node not in unstaged]
    if not nodes:
        return {}
    states = [_without(state, unstaged.get(state.name)) for state in prepared.states]

    engine = Engine(job.adapters, states, prepared.policy, observe=observe, cancel=cancel)
    ending = engine.run()
    return results_of(ending, nodes, canceled=cancel.is_set())


def _can_be_changed_in_place(job: Job, result: NodeResult) -> bool:
    """Tell whether a node was put back into service since what differs can be changed there."""
    answer = job.answers.get(result.node)
    if result.status is not Status.WAITING or not isinstance(answer, Assessment) or find_obstacle(answer.plan):
        return False
    return not answer.plan.is_empty and not needs_turn(answer.plan)


def _without(state: NodeState, unstaged: NodeResult | None) -> NodeState:
    """Return a node's state, with what keeps it from being taken out of service."""
    failure = None if unstaged is None else unstaged.failure
    return state if failure is None else replace(state, obstacle=f"it is not staged: {failure.message}")


def _in_order(job: Job, changed: Mapping[str, NodeResult]) -> tuple[NodeResult, ...]:
    """Return the results of all nodes, including nodes that were left alone."""
    results = []
    for node, answer in job.answers.items():
        refusal = job.prepared.refusals.get(node)
        refused = None if refusal is None else NodeResult(node, refusal.status, failure=refusal)
        result = changed.get(node) or refused or settled(node, answer)
        results.append(result or NodeResult(node, Status.WAITING))
    return tuple(results)


def refuse_if_changed(cluster: Cluster, prepared: Prepared) -> None:
    """Raise if another apply moved a node between the plan that a person saw and now."""
    views = cluster.observe([state.name for state in prepared.states])
    for state in prepared.states:
        if _record(views[state.name]) != state.record:
            raise GrapnelError(
                f"another apply changed the state of {state.name} after this one made its plan",
                hint="run it again: it plans from the present state",
            )


def _record(view: NodeView | NodeProblem) -> Record | None:
    return None if isinstance(view, NodeProblem) else view.record


def ensure_runtime_classes(
    job: Job, results: Collection[NodeResult], observe: RolloutObserver
) -> tuple[GrapnelError, ...]:
    """Create the RuntimeClass of every handler that at least one node of the cluster has; return what went wrong."""
    good = {result.node for result in results if result.is_good}
    there = [job.stacks[state.name] for state in job.prepared.states if state.name in good]
    complaints: list[GrapnelError] = []
    for handler in runtime_classes(there):
        try:
            if job.adapters.cluster.ensure_runtime_class(handler, handler):
                observe(Note("", f"RuntimeClass {handler} was created for the handler of that name"))
        except ClusterError as error:  # the nodes are done, and their results have to be seen
            complaints.append(error)
    return tuple(complaints)


def set_tenancy(job: Job, observe: RolloutObserver) -> tuple[GrapnelError, ...]:
    """Make quotas, priorities and queues as declared, however the nodes stand; return what went wrong."""
    planned = job.prepared.tenancy
    try:
        done = job.adapters.cluster.set_tenancy(planned.order) if planned.changes else planned
    except ClusterError as error:  # the nodes are done, and their results have to be seen
        return (error,)
    for change in done.changes:
        observe(Note("", change))
    return tuple(GrapnelError(problem) for problem in done.problems)


def set_marks(job: Job, results: Collection[NodeResult], observe: RolloutObserver) -> tuple[GrapnelError, ...]:
    """Give the Nodes of all machines that are as declared their labels and taints; return what went wrong."""
    good = {result.node for result in results if result.is_good}
    changed = {name: each for name, each in job.prepared.marks.items() if name in good}
    wanted = {name: declared_marks(job.stacks[name]) for name, each in changed.items() if each.changes}
    complaints: list[GrapnelError] = [
        GrapnelError(f"node {name} keeps what somebody else has set: {conflict}", hint=_CONFLICT)
        for name, each in changed.items()
        for conflict in each.conflicts
    ]
    try:
        failed = job.adapters.cluster.set_marks(wanted) if wanted else {}
    except ClusterError as error:  # the nodes are done, and their results have to be seen
        return (*complaints, error)
    for name in wanted.keys() - failed.keys():
        observe(Note(name, f"its Node: {', '.join(changed[name].changes)}"))
    return (*complaints, *dict.fromkeys(failed.values()))
