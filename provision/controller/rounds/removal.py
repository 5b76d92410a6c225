"""Takes grapnel off the nodes of a stack that was deleted, by the engine of `grapnel remove`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.apply.gather import gather_facts
from provision.apply.removal import ALL_PARTS, gather_removals
from provision.base.errors import GrapnelError
from provision.controller.rounds.apply import RoundResult, opened
from provision.rollout.errors import ClusterError
from provision.rollout.gates import GateKeeper
from provision.rollout.interface.node_marks import NodeMarks
from provision.rollout.verbs.driver_verbs import execute_verb, verb_steps
from provision.rollout.verbs.plan import plan_verb
from provision.rollout.verbs.removing import Removing

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection

    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.controller.decision.choice import Order
    from provision.controller.rounds.apply import Dependencies
    from provision.rollout.interface.instructions import Instructions
    from provision.rollout.interface.progress import RolloutObserver


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
