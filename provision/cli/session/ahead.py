"""Looks ahead: the facts and plans of nodes, and what would happen to them and to their cluster."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from provision.apply.converge import assess
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.apply.supply.kinds import foresee_builds
from provision.cli.session.scope import declared_gates
from provision.cluster.machine import Machine
from provision.report.console import make_console
from provision.report.planned.builds import render_builds
from provision.report.planned.plans import render_plans
from provision.report.planned.rollout import render_rollout
from provision.report.progress.live import open_view
from provision.report.terminal import show
from provision.rollout.decision.drain import evictable
from provision.rollout.decision.hours import opening_hours
from provision.rollout.decision.prepare import prepare, runtime_classes
from provision.rollout.gates import ask_once
from provision.rollout.interface.node_marks import declared_marks
from provision.rollout.interface.tenancy import tenancy_order
from provision.rollout.simulate.foresee import foresee

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from rich.console import Console

    from provision.apply.context import ApplyContext
    from provision.apply.model import Assessment
    from provision.cli.session.scope import Scope
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.cluster import Cluster


class Seen(Protocol):
    """Sees what is planned before anybody else does; it may raise GrapnelError."""

    def __call__(self, answers: Mapping[str, Assessment | Failure], prepared: Prepared) -> None:
        """See it."""


def look_ahead(
    context: ApplyContext, scope: Scope, tell: Seen | None = None
) -> tuple[Mapping[str, Assessment | Failure], Prepared]:
    """Return what an apply would begin with, for nodes and cluster, after ``tell`` has seen it."""
    with cancel_on_signals() as cancel:
        answers, prepared = assess_fleet(context, scope, cancel)
        prepared = with_tenancy(prepared, scope)
    if tell is not None:
        tell(answers, prepared)
    return answers, prepared


def assess_fleet(
    context: ApplyContext, scope: Scope, cancel: threading.Event
) -> tuple[Mapping[str, Assessment | Failure], Prepared]:
    """Gather the nodes' facts in one run and plan each of them; progress is on standard error."""
    with open_view(make_console(sys.stderr), tuple(scope.stacks), time.monotonic) as view:
        answers = assess(context, scope.stacks, view, cancel)
    for node, answer in answers.items():
        if not isinstance(answer, Failure):
            scope.machines[node] = with_identity(scope.machines.get(node, Machine()), answer.facts)
    views = scope.cluster.observe(tuple(scope.stacks))
    prepared = foresee_refusals(prepare(answers, scope.stacks, views, scope.groups, scope.unnamed), scope.cluster)
    wanted = runtime_classes(scope.stacks[state.name] for state in prepared.states)
    missing = tuple(name for name in wanted if not scope.cluster.has_runtime_class(name, name))
    marks = scope.cluster.compare_marks({name: declared_marks(scope.stacks[name]) for name in scope.stacks})
    builds = foresee_builds(context, answers, prepared.todo)
    closed = opening_hours(prepared.states, prepared.policy, scope.clock()).closed
    known = replace(prepared, runtime_classes=missing, marks=marks, builds=builds, closed=closed)
    return answers, foresee_rollout(known, scope) if prepared.rollout else known


def foresee_rollout(prepared: Prepared, scope: Scope) -> Prepared:
    """Return it with the gates as they are now, and how long the roll-out is expected to take."""
    known = replace(prepared, gates=ask_once(declared_gates(scope.stacks)))
    return replace(known, forecast=foresee(known, scope.clock()))


def with_tenancy(prepared: Prepared, scope: Scope) -> Prepared:
    """Return it with how quotas, priorities and queues of the cluster differ from the declaration."""
    return replace(prepared, tenancy=scope.cluster.compare_tenancy(tenancy_order(scope.stack, scope.stacks)))


def foresee_refusals(prepared: Prepared, cluster: Cluster) -> Prepared:
    """Return it with what would refuse an eviction now, for the nodes that are to be drained."""
    draining = set(prepared.rollout)
    pods = [pod for state in prepared.states if state.name in draining for pod in evictable(state)]
    refused = cluster.refusals(pods)
    return (
        replace(prepared, states=tuple(_refused(state, refused) for state in prepared.states)) if refused else prepared
    )


def _refused(state: NodeState, refused: Mapping[str, str]) -> NodeState:
    blocked = {pod.uid: refused[pod.uid] for pod in evictable(state) if pod.uid in refused}
    return replace(state, blocked=blocked) if blocked else state


def with_identity(machine: Machine, facts: NodeFacts) -> Machine:
    """Return a machine with the host name and id that its facts give."""
    return replace(machine, hostname=facts.node.hostname, machine_id=facts.node.machine_id)


def show_overview(
    console: Console,
    answers: Mapping[str, Assessment | Failure],
    prepared: Prepared,
    scope: Scope,
    last: Mapping[str, float],
) -> None:
    """Print the plans, and below them what would be taken out of service and made in the cluster.

    ``last`` are the seconds that steps took last time.
    """
    show(console, render_plans(answers, prepared.refusals, last))
    show(console, render_builds(prepared.builds))
    kubernetes = "" if scope.kubernetes is None else scope.kubernetes.name
    show(console, render_rollout(prepared, scope.cluster.name, kubernetes))
