"""`grapnel reboot`: reboots nodes, wave by wave, each out of service."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from provision.apply.gather import gather_facts
from provision.apply.interrupt import cancel_on_signals
from provision.apply.lock import lock_machines
from provision.apply.model import Failure, NodeResult
from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.change.apply import claim_of, exit_code, find_pause, holder_of
from provision.cli.cluster import declared_gates, open_scope
from provision.cli.fleet import load_fleet, named_nodes
from provision.cli.foresee.plan import build_context, foresee_refusals, with_identity
from provision.cli.listening import open_listeners
from provision.cli.recording import UNRECORDED, recorded
from provision.cli.terminal import say
from provision.cluster.machine import Machine
from provision.declaration.fleet.resolve import resolve_nodes
from provision.report.console import make_console
from provision.report.planned.rollout import render_rollout, rollout_document
from provision.report.progress.live import open_view
from provision.report.results import render_results
from provision.report.terminal import show
from provision.rollout.adapters import Adapters
from provision.rollout.decision.hours import opening_hours
from provision.rollout.decision.prepare import only_in_flight
from provision.rollout.gates import GateKeeper, ask_once
from provision.rollout.verbs.driver_verbs import execute_verb
from provision.rollout.verbs.reboot_plan import COMMAND, SINCE, RebootRequest, another_change, plan_reboots
from provision.rollout.verbs.reboot_steps import reboot_steps

if TYPE_CHECKING:
    import argparse
    import threading

    from rich.console import Console

    from provision.apply.context import ApplyContext
    from provision.cli.cluster import Scope
    from provision.cli.recording import Run
    from provision.rollout.interface.pause import Pause
    from provision.rollout.verbs.reboot_plan import RebootPlan


def run(args: argparse.Namespace) -> int:
    """Reboot the nodes that are named, or that need it; return the exit code."""
    args.nodes = named_nodes(args)
    if not args.nodes and not args.needed:
        raise UsageError("say which nodes", hint=f"{COMMAND} NODE..., or {COMMAND} --needed")
    if not args.yes and not args.plan and not sys.stdin.isatty():
        raise UsageError(
            "reboot asks before it changes machines, and standard input is not a terminal", hint="add --yes"
        )
    now = datetime.now(UTC)
    since = now - SINCE if args.since is None else parse_moment(args.since)
    args.limit = ",".join(args.nodes)
    fleet = load_fleet(args)
    addresses = resolve_nodes(fleet.nodes)
    request = RebootRequest(now=now, since=since, only_needed=args.needed)
    if args.plan:
        context = build_context(args, fleet)
        scope = open_scope(args, fleet, context.declarations.stacks, addresses, all_pods=True)
        return show_plan(context, scope, replace(request, groups=scope.groups), as_json=args.json)
    with lock_machines(claim_of(fleet, addresses), os.environ) as environment:

        def work(run: Run) -> int:
            context = build_context(args, fleet, environment=environment)
            scope = open_scope(args, fleet, context.declarations.stacks, addresses, all_pods=True)
            scope, of = replace(scope, metrics_file=args.metrics_file), replace(request, groups=scope.groups)
            return reboot_nodes(context, scope, of, consent=args.yes, waits=not args.no_wait, record=run)

        return recorded(args, fleet, "reboot", work)


def parse_moment(text: str) -> datetime:
    """Return a moment that a person wrote, which has a date, a time and a zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(f"--since {text}: not a moment with its zone", hint="such as 2026-11-23T14:00:00Z")
    return moment


def show_plan(context: ApplyContext, scope: Scope, request: RebootRequest, *, as_json: bool) -> int:
    """Print what would be done; return the exit code, 1 where a node could not be rebooted."""
    with cancel_on_signals() as cancel:
        plan = _plan(context, scope, request, cancel)
    if as_json:
        print(json.dumps(plan_document(plan, scope.cluster.name), indent=2))
    else:
        _show(plan, scope, make_console(sys.stdout))
    return ExitCode.DONE if all(result.is_good for result in plan.settled.values()) else ExitCode.FAILED


def plan_document(plan: RebootPlan, cluster: str) -> dict[str, object]:
    """Return a plan as JSON: the rollout as `grapnel plan --json` has it, and why nodes need a reboot, or get none."""
    return {
        "schema": "grapnel.dev/reboot-plan/v1alpha1",
        "rollout": rollout_document(plan.prepared, cluster),
        "needs": {name: list(reasons) for name, reasons in plan.needs.items() if reasons},
        "left": [
            {
                "node": result.node,
                "result": result.status.value,
                "reason": (result.failure.message if result.failure is not None else result.note) or None,
            }
            for result in plan.settled.values()
        ],
    }


def reboot_nodes(  # noqa: PLR0913 - what a command line says
    context: ApplyContext,
    scope: Scope,
    request: RebootRequest,
    *,
    consent: bool,
    waits: bool = True,
    record: Run = UNRECORDED,
) -> int:
    """Show who goes out of service, ask unless there is consent, reboot, show the results; return the exit code."""
    console, began = make_console(record.people), time.monotonic()
    pause = find_pause(scope)
    with cancel_on_signals() as cancel:
        plan = _only_in_flight(_plan(context, scope, request, cancel), pause)
    prepared = replace(plan.prepared, policy=replace(plan.prepared.policy, waits=waits))
    plan = replace(plan, prepared=prepared)
    _show(plan, scope, console)
    console.print()
    if prepared.rollout and not consent:
        asked = time.monotonic()
        if not _confirm(len(prepared.rollout)):
            record.declined()
            console.print("nothing was changed")
            return ExitCode.FAILED
        began += time.monotonic() - asked
    keeper = GateKeeper(declared_gates(scope.stacks) if prepared.rollout else ())
    listeners = open_listeners(scope, holder=holder_of(context), metrics_file=scope.metrics_file)
    adapters = Adapters(
        cluster=scope.cluster,
        steps=reboot_steps(context, scope.stacks, plan),
        clock=scope.clock,
        poll_s=scope.poll_s,
        publish=listeners.see,
        gates=keeper,
    )
    with cancel_on_signals() as cancel, record.view(console, prepared.rollout) as view, keeper:
        observe = record.observing(listeners.observing(view))
        results = execute_verb(plan, adapters, observe, cancel=cancel, holder=holder_of(context))
    if prepared.rollout:
        console.print()
    record.results(results, time.monotonic() - began)
    show(console, render_results(results, time.monotonic() - began, COMMAND))
    for untold in listeners.close():
        say(f"· {untold}", sys.stderr)
    return exit_code(results)


def _plan(context: ApplyContext, scope: Scope, request: RebootRequest, cancel: threading.Event) -> RebootPlan:
    """Gather facts and sort the nodes; nothing has to be downloaded for a reboot."""
    playbooks = replace(context.playbooks, offline=True)
    with open_view(make_console(sys.stderr), tuple(scope.stacks), time.monotonic) as view:
        answers = gather_facts(context.runner, playbooks.facts(scope.stacks), view, cancel)
    for node, answer in answers.items():
        if not isinstance(answer, Failure):
            scope.machines[node] = with_identity(scope.machines.get(node, Machine()), answer)
    views = scope.cluster.observe(tuple(scope.stacks))
    if (other := another_change(views)) is not None:
        name, phase = other
        raise GrapnelError(
            f"{name} is out of service for its driver, in {phase}: that has to come to its end first",
            hint="`grapnel apply` goes on with it, `grapnel status` shows who is at work; or leave it out. Nothing was "
            "changed",
        )
    plan = plan_reboots(answers, scope.stacks, views, request)
    prepared = foresee_refusals(plan.prepared, scope.cluster)
    closed = opening_hours(prepared.states, prepared.policy, scope.clock()).closed
    gates = ask_once(declared_gates(scope.stacks)) if prepared.rollout else ()
    return replace(plan, prepared=replace(prepared, closed=closed, gates=gates))


def _only_in_flight(plan: RebootPlan, pause: Pause | None) -> RebootPlan:
    """Return what is left of a plan that is carried out while somebody wants no node to begin."""
    if pause is None:
        return plan
    prepared = only_in_flight(plan.prepared, pause)
    refused = {name: NodeResult(name, failure.status, failure=failure) for name, failure in prepared.refusals.items()}
    return replace(plan, prepared=prepared, settled={**plan.settled, **refused})


def _show(plan: RebootPlan, scope: Scope, console: Console) -> None:
    for name in plan.prepared.rollout:
        if reasons := plan.needs.get(name):
            console.print(f"{name} needs a reboot: {'; '.join(reasons)}", soft_wrap=True)
    for result in plan.settled.values():
        reason = result.failure.message if result.failure is not None else result.note
        if reason:
            console.print(f"{result.node} is not rebooted: {reason}", soft_wrap=True)
    if plan.prepared.rollout:
        show(console, render_rollout(plan.prepared, scope.cluster.name))
    else:
        console.print("no node is to be rebooted")


def _confirm(count: int) -> bool:
    nodes, them = ("1 node", "it") if count == 1 else (f"{count} nodes", "them")
    print(f"reboot {nodes}, taking {them} out of service for a while? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
