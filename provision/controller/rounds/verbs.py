"""Returns nodes to their former driver or takes grapnel off them, by the engines of `grapnel rollback` and `remove`.

A node that has it again is left so (its record says that it returned) until another try is asked for, or another
declaration comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.apply.gather import gather_facts
from provision.apply.model import Failure, Status
from provision.apply.removal import ALL_PARTS, gather_removals
from provision.base.errors import GrapnelError
from provision.controller.rounds.apply import RoundResult, opened
from provision.rollout.changes.driver_verbs import execute_verb, verb_steps
from provision.rollout.changes.plan import DriverVerb, Extent, plan_verb
from provision.rollout.changes.removing import Removing
from provision.rollout.errors import ClusterError
from provision.rollout.gates import GateKeeper
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.node_marks import NodeMarks

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping

    from provision.apply.model import NodeResult
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.controller.decision.choice import Order
    from provision.controller.rounds.apply import Dependencies
    from provision.rollout.changes.plan import VerbPlan
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.instructions import Instructions
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.model import NodeView


def roll_back(
    dependencies: Dependencies,
    order: Order,
    observe: RolloutObserver,
    cancel: threading.Event,
    instructions: Instructions,
) -> RoundResult:
    """Return the nodes of an order that go back to their former driver, whatever windows and an earlier pause say.

    ``instructions`` are for the engine. Raises GrapnelError where nothing could be begun.
    """
    spec = order.stack.spec
    cluster = dependencies.open_cluster(dict.fromkeys(order.members, spec))
    views = cluster.observe(tuple(order.members))
    extent = _extent(views, order)
    nodes = sorted(extent.wanted_by)  # what was known of them when they became due may be done by now
    if not nodes:
        return RoundResult(())
    stacks = dict.fromkeys(nodes, spec)
    with opened(dependencies, order) as found:
        # All that it takes lies on the node, which may reach no package source and need not wait for one.
        context = replace(found, playbooks=replace(found.playbooks, offline=True))
        answers = gather_facts(context.runner, context.playbooks.facts(nodes), observe, cancel)
        plan = plan_verb(DriverVerb.BACK, answers, stacks, {name: views[name] for name in nodes}, extent)
        plan = _despite(plan, cluster)
        listeners = dependencies.listen(cluster, stacks)
        adapters = dependencies.adapt(cluster, verb_steps(context, stacks, plan), GateKeeper(()))
        adapters = replace(adapters, publish=listeners.see, instructions=instructions)
        if plan.prepared.rollout:
            dependencies.keep(order)
        observe = listeners.observing(observe)
        try:
            results = execute_verb(plan, adapters, observe, cancel=cancel, holder=dependencies.holder)
        finally:
            untold = listeners.close()
    complaints = _forget(cluster, views, results)
    said = tuple(_said(each, extent.wanted_by[each.node]) for each in results)
    return RoundResult(said, (*complaints, *(GrapnelError(each) for each in untold)))


def _extent(views: Mapping[str, NodeView | NodeProblem], order: Order) -> Extent:
    """Return who wants it of each node; the others of the stack may be in a domain with one of them."""
    asked = ((name, _who(views[name])) for name in order.back)
    wanted_by = {name: who for name, who in asked if who}
    return Extent(unnamed={name: view for name, view in views.items() if name not in wanted_by}, wanted_by=wanted_by)


def _who(view: NodeView | NodeProblem) -> str:
    record = None if isinstance(view, NodeProblem) else view.record
    return "" if record is None else record.back_for


def _despite(plan: VerbPlan, cluster: Cluster) -> VerbPlan:
    """Return the plan of an administrator who wants it in spite of the pause that there is, and of no later one."""
    policy = replace(plan.prepared.policy, despite=cluster.paused())
    return replace(plan, prepared=replace(plan.prepared, policy=policy))


def _forget(
    cluster: Cluster, views: Mapping[str, NodeView | NodeProblem], results: tuple[NodeResult, ...]
) -> tuple[GrapnelError, ...]:
    """Forget the request of nodes that had their former driver again already; return what went wrong."""
    complaints: list[GrapnelError] = []
    for result in results:
        view = views[result.node]
        if isinstance(view, NodeProblem) or view.record is None or result.upgrade is not None or not result.is_good:
            continue
        try:
            cluster.write(result.node, replace(view.record, back_for=""))
        except ClusterError as error:
            complaints.append(error)
    return tuple(complaints)


def _said(result: NodeResult, who: str) -> NodeResult:
    """Return a result that says what was asked for, where that could not be done."""
    failure = result.failure
    if failure is None or result.status in (Status.CANCELED, Status.RETURNED):
        return result
    message = f"{who} asked for its former driver (`grapnel rollback`): {failure.message}"
    hint = f"`grapnel retry {result.node}` takes that back"
    return replace(result, failure=Failure(failure.status, f"{message}; {hint}", failure.task, failure.tail))


def take_off(
    dependencies: Dependencies,
    order: Order,
    observe: RolloutObserver,
    cancel: threading.Event,
    instructions: Instructions,
) -> RoundResult:
    """Take all of grapnel off the due nodes of a stack, with what it declares about outages and drains.

    A node with nothing of it is left alone. ``instructions`` are for the engine. Raises GrapnelError where nothing
    could be begun.
    """
    spec, due = order.stack.spec, sorted(order.due)
    stacks = dict.fromkeys(due, spec)
    with opened(dependencies, order) as found:
        # All that it takes lies on the node, which may reach no package source and need not wait for one.
        context = replace(found, playbooks=replace(found.playbooks, offline=True))
        answers = gather_facts(context.runner, context.playbooks.facts(due), observe, cancel)
        verb = Removing(parts=ALL_PARTS)
        looking = context.playbooks.foresee_removal(verb.others, due, driver=verb.has_driver)
        verb = replace(verb, removals=gather_removals(context.runner, looking, observe, cancel))
        for node in due:
            dependencies.withdraw(node)
        cluster = dependencies.open_cluster(stacks)
        plan = plan_verb(verb, answers, stacks, cluster.observe(due))
        listeners = dependencies.listen(cluster, stacks)
        adapters = dependencies.adapt(cluster, verb_steps(context, stacks, plan), GateKeeper(()))
        adapters = replace(adapters, publish=listeners.see, instructions=instructions)
        observe = listeners.observing(observe)
        try:
            results = execute_verb(plan, adapters, observe, cancel=cancel, holder=dependencies.holder)
        finally:
            untold = listeners.close()
    complaints = _unmark(cluster, order, [each.node for each in results if each.is_good])
    return RoundResult(results, (*complaints, *(GrapnelError(each) for each in untold)))


def _unmark(cluster: KubernetesCluster, order: Order, nodes: Collection[str]) -> tuple[GrapnelError, ...]:
    """Take the labels and taints off Nodes that the stack had declared for them."""
    marked = [name for name in nodes if order.members[name].has_marks]
    if not marked:
        return ()
    try:
        cluster.observe(marked)
        return tuple(dict.fromkeys(cluster.set_marks(dict.fromkeys(marked, NodeMarks({}, {}))).values()))
    except ClusterError as error:  # the nodes are done, and their results have to be seen
        return (error,)
