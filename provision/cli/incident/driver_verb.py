"""What `rollback` and `remove` have in common: gather facts, show who goes out of service, ask, carry it out."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.apply.gather import gather_facts
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure, Status
from provision.apply.removal import Part, gather_removals
from provision.base.errors import ExitCode, GrapnelError
from provision.cli.leave.cluster_removal import left_behind, notes_of, plan_of_cluster, with_classes
from provision.cli.session.ahead import with_identity
from provision.cli.session.context import build_context
from provision.cli.session.fleet import load_fleet
from provision.cli.session.recording import UNRECORDED
from provision.cli.session.scope import open_scope, with_unnamed
from provision.cli.session.work import FleetChange, change_fleet, holder_of, require_consent
from provision.cli.terminal import person, say
from provision.cluster.machine import Machine
from provision.declaration.fleet.resolve import resolve_nodes
from provision.declaration.spec.text.excerpt import few
from provision.report.console import make_console
from provision.report.planned.removal import removals_document, render_cluster_removal, render_removals
from provision.report.planned.rollout import render_rollout, rollout_document
from provision.report.progress.live import open_view
from provision.report.results import render_results
from provision.report.terminal import show
from provision.rollout.changes.cluster_removal import take_back
from provision.rollout.changes.driver_verbs import execute_verb, verb_steps
from provision.rollout.changes.plan import EVERY_NODE, DriverVerb, Extent, plan_verb
from provision.rollout.changes.removing import Removing, named_parts

if TYPE_CHECKING:
    import argparse
    import threading
    from collections.abc import Mapping, Sequence

    from provision.apply.context import ApplyContext
    from provision.apply.model import NodeResult
    from provision.apply.removal import NodeRemoval
    from provision.cli.session.context import ContextBuilder
    from provision.cli.session.recording import Run
    from provision.cli.session.scope import Scope
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.adapters import Adapters
    from provision.rollout.changes.cluster_removal import ClusterRemoval
    from provision.rollout.changes.plan import AnyVerb, VerbPlan
    from provision.rollout.interface.progress import RolloutObserver

SET_UP_AGAIN: Final = (
    "the next `grapnel apply` sets up again what is declared for {nodes}: take them out of the inventory, or declare "
    "driver.enabled, runtime.enabled and plugin.enabled as they shall be"
)


def run_verb(
    args: argparse.Namespace,
    verb: AnyVerb,
    extent: Extent = EVERY_NODE,
    build: ContextBuilder | None = None,
) -> int:
    """Carry a verb out on the machines that the command line selects; return the exit code."""
    only_shows = getattr(args, "plan", False)
    name = verb.command.split()[1]
    if not only_shows:
        require_consent(args, name)
    fleet = load_fleet(args)
    if isinstance(verb, Removing):
        verb = with_classes(args, verb, fleet)
    if only_shows:
        context = build_context(args, fleet)
        scope = open_scope(args, fleet, context.declarations.stacks, resolve_nodes(fleet.nodes))
        scope = with_unnamed(args, fleet, scope)
        return show_verb(context, scope, verb, as_json=args.json, extent=whole_extent(extent, scope, verb))

    def work(context: ApplyContext, scope: Scope, run: Run) -> int:
        scope = with_unnamed(args, fleet, scope)
        whole = whole_extent(extent, scope, verb)
        return change_drivers(context, scope, verb, consent=args.yes, extent=whole, record=run)

    return change_fleet(args, fleet, name, work, build=build)


def whole_extent(extent: Extent, scope: Scope, verb: AnyVerb) -> Extent:
    """Return how far a verb goes, with what is known of the nodes' places: the same for a plan as for what follows."""
    return replace(extent, groups=scope.groups, unnamed=scope.unnamed, wanted_by=_wanted_by(scope, verb))


def _wanted_by(scope: Scope, verb: AnyVerb) -> dict[str, str]:
    """Return who wants nodes to be left with their former driver: a controller would bring the declared one again."""
    if verb is not DriverVerb.BACK or scope.kubernetes is None or not scope.kubernetes.leading_controller():
        return {}
    return dict.fromkeys(scope.stacks, person())


def show_verb(context: ApplyContext, scope: Scope, verb: AnyVerb, *, as_json: bool, extent: Extent = EVERY_NODE) -> int:
    """Print what would be done, and change nothing; return the exit code, 1 where a node would be refused."""
    context = replace(context, playbooks=replace(context.playbooks, offline=True))
    with cancel_on_signals() as cancel:
        plan = _plan(context, scope, verb, extent, cancel)
    taken = plan_of_cluster(plan.verb, scope)
    if as_json:
        parts = plan.verb.parts if isinstance(plan.verb, Removing) else {Part.DRIVER}
        print(removals_document(plan.foreseen, parts, rollout_document(plan.prepared, scope.cluster.name), taken))
    else:
        console = make_console(sys.stdout)
        show(console, render_removals(plan.foreseen, left_behind(plan.verb, scope)))
        show(console, render_cluster_removal(taken, scope.cluster.name))
        show(console, render_rollout(plan.prepared, scope.cluster.name))
        show(console, render_results(tuple(plan.settled.values()), 0, plan.verb.command) if plan.settled else ())
    is_refused = any(isinstance(one, Failure) or one.problems for one in plan.foreseen.values())
    is_good = not is_refused and all(result.is_good for result in plan.settled.values())
    return ExitCode.DONE if is_good else ExitCode.FAILED


def _ways_back(context: ApplyContext, plan: VerbPlan, cancel: threading.Event) -> Mapping[str, NodeRemoval | Failure]:
    """Return what is done on each node that would go back; one that is put back into service alone is not asked."""
    prepared = plan.prepared
    names = [state.name for state in prepared.states if state.is_disruptive and state.name in prepared.rollout]
    if not names:
        return {}
    with open_view(make_console(sys.stderr), tuple(names), time.monotonic) as view:
        return gather_removals(context.runner, context.playbooks.foresee_back(names), view, cancel)


def change_drivers(
    context: ApplyContext,
    scope: Scope,
    verb: AnyVerb,
    *,
    consent: bool,
    extent: Extent = EVERY_NODE,
    record: Run = UNRECORDED,
) -> int:
    """Gather facts, show who goes out of service, ask unless there is consent, change, show the results."""
    change = FleetChange(context, scope, record)
    # All that it takes lies on the node, which may reach no package source and need not wait for one.
    context = replace(context, playbooks=replace(context.playbooks, offline=True))
    with cancel_on_signals() as cancel:
        plan = _plan(context, scope, verb, extent, cancel)
    taken = plan_of_cluster(plan.verb, scope)
    show(change.console, render_removals(plan.foreseen, left_behind(plan.verb, scope)))
    show(change.console, render_cluster_removal(taken, scope.cluster.name))
    if plan.prepared.rollout or taken:
        plan = _despite_pause(plan, scope, record)
        show(change.console, render_rollout(plan.prepared, scope.cluster.name))
        change.console.print()
        if not change.is_wanted(_question(plan), consent=consent):
            return ExitCode.FAILED

    def act(
        adapters: Adapters, observe: RolloutObserver, cancel: threading.Event
    ) -> tuple[tuple[NodeResult, ...], ClusterRemoval]:
        results = execute_verb(plan, adapters, observe, cancel=cancel, holder=holder_of(context))
        if not isinstance(plan.verb, Removing) or cancel.is_set():
            return results, taken
        back = take_back(scope.cluster, taken, results, holder_of(context))
        for note in notes_of(back):
            observe(note)
        return results, back

    results, back = change.carry_out(verb_steps(context, scope.stacks, plan), plan.prepared.rollout, act)
    code = change.tell(results, back.failed, verb.command)
    for line in what_is_next(plan, scope, results):
        change.console.print(line, soft_wrap=True)
    return code


def _plan(context: ApplyContext, scope: Scope, verb: AnyVerb, extent: Extent, cancel: threading.Event) -> VerbPlan:
    with open_view(make_console(sys.stderr), tuple(scope.stacks), time.monotonic) as view:
        answers = gather_facts(context.runner, context.playbooks.facts(scope.stacks), view, cancel)
        if isinstance(verb, Removing):
            request = context.playbooks.foresee_removal(verb.others, scope.stacks, driver=verb.has_driver)
            verb = replace(verb, removals=gather_removals(context.runner, request, view, cancel))
    _identify(scope, answers)
    plan = plan_verb(verb, answers, scope.stacks, scope.cluster.observe(tuple(scope.stacks)), extent)
    if not isinstance(verb, Removing):
        plan = replace(plan, foreseen=_ways_back(context, plan, cancel))
    is_about_any = plan.prepared.rollout or any(one.status is not Status.UNCHANGED for one in plan.settled.values())
    if extent.undoes_upgrade and not is_about_any:
        raise GrapnelError(
            f"no node was changed by an upgrade to the driver that is declared ({_declared(scope)})",
            hint="`grapnel rollback NODE...` returns nodes from any change, also one that kept the version",
        )
    return plan


def _despite_pause(plan: VerbPlan, scope: Scope, record: Run) -> VerbPlan:
    """Return the plan of an administrator who was told of a pause: that comes first when a driver is not good."""
    pause = scope.cluster.paused()
    if pause is None:
        return plan
    name = plan.verb.command.removeprefix("grapnel ")
    say(f"upgrades are paused {pause}; {name} is not held up by that, but by a later `grapnel pause`", record.people)
    policy = replace(plan.prepared.policy, despite=pause)
    return replace(plan, prepared=replace(plan.prepared, policy=policy))


def _declared(scope: Scope) -> str:
    """Return what the declarations say of the driver."""
    drivers = [stack.driver for stack in scope.stacks.values() if stack.driver.enabled]
    found = dict.fromkeys(each.version or (f"branch {each.branch}" if each.branch else "any") for each in drivers)
    return ", ".join(found) or "none"


def _identify(scope: Scope, answers: Mapping[str, NodeFacts | Failure]) -> None:
    for node, answer in answers.items():
        if not isinstance(answer, Failure):
            scope.machines[node] = with_identity(scope.machines.get(node, Machine()), answer)


def _question(plan: VerbPlan) -> str:
    count = len(plan.prepared.rollout)
    if not count:
        return "take back what grapnel made in the cluster?"
    nodes = "1 node" if count == 1 else f"{count} nodes"
    what = f"return {nodes} to the driver before, taking it out of service for a while"
    if isinstance(plan.verb, Removing) and not plan.verb.others:
        what = f"remove the driver of {nodes}, and everything that came with it"
    elif isinstance(plan.verb, Removing):
        what = f"take {named_parts(plan.verb)} away from {nodes}, taking it out of service for a while"
    return f"{what if count == 1 else what.replace('taking it', 'taking them')}?"


def what_is_next(plan: VerbPlan, scope: Scope, results: Sequence[NodeResult]) -> list[str]:
    """Return what the declaration still says otherwise, and what to do about it."""
    if isinstance(plan.verb, Removing) and plan.verb.others:
        removed = [result.node for result in results if result.status is plan.verb.status]
        return [SET_UP_AGAIN.format(nodes=few(removed))] if removed else []
    differing: dict[str, list[str]] = {}
    for result in results:
        driver, target = scope.stacks[result.node].driver, plan.targets.get(result.node, "")
        if result.status is not plan.verb.status or not driver.enabled:
            continue
        declared = driver.version or (f"of branch {driver.branch}" if driver.branch else "of its own choice")
        if declared != target:
            differing.setdefault(declared, []).append(result.node)
    left = {state.name for state in plan.prepared.states if state.back_for}
    kept = [result.node for result in results if result.status is plan.verb.status and result.node in left]
    remedy = "declare driver.enabled: false to leave them alone"
    if plan.verb is DriverVerb.BACK:
        remedy = "declare the version that they shall keep, or driver.enabled: false to leave them alone"
    return [
        f"the declaration still names driver {declared} for {few(nodes)}, and the next `grapnel apply` "
        f"brings it back: {remedy}"
        for declared, nodes in differing.items()
    ] + [f"the controller leaves {few(kept)} so until `grapnel retry NODE`, or another declaration" for _ in kept[:1]]
