"""`grapnel reboot`: reboots nodes, wave by wave, each out of service."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from provision.apply.gather import gather_facts
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure, NodeResult
from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.session.ahead import foresee_refusals, with_identity
from provision.cli.session.context import build_context
from provision.cli.session.fleet import load_fleet
from provision.cli.session.recording import UNRECORDED
from provision.cli.session.scope import declared_gates, open_scope
from provision.cli.session.work import FleetChange, change_fleet, find_pause, holder_of, require_consent
from provision.cluster.machine import Machine
from provision.declaration.fleet.resolve import resolve_nodes
from provision.report.console import make_console
from provision.report.planned.rollout import render_rollout, rollout_document
from provision.report.progress.live import open_view
from provision.report.terminal import show
from provision.rollout.changes.driver_verbs import execute_verb
from provision.rollout.changes.reboot_plan import COMMAND, SINCE, RebootRequest, another_change, plan_reboots
from provision.rollout.changes.reboot_steps import reboot_steps
from provision.rollout.decision.hours import opening_hours
from provision.rollout.decision.prepare import only_in_flight
from provision.rollout.gates import ask_once

if TYPE_CHECKING:
    import argparse
    import threading

    from rich.console import Console

    from provision.apply.context import ApplyContext
    from provision.cli.session.recording import Run
    from provision.cli.session.scope import Scope
    from provision.rollout.adapters import Adapters
    from provision.rollout.changes.reboot_plan import RebootPlan
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.progress import RolloutObserver


def run(args: argparse.Namespace) -> int:
    """Reboot the nodes that are named, or that need it; return the exit code."""
    if not args.limit and not args.needed:
        raise UsageError("say which nodes", hint=f"{COMMAND} NODE..., or {COMMAND} --needed")
    if not args.plan:
        require_consent(args, "reboot")
    now = datetime.now(UTC)
    since = now - SINCE if args.since is None else parse_moment(args.since)
    fleet = load_fleet(args)
    request = RebootRequest(now=now, since=since, only_needed=args.needed)
    if args.plan:
        context = build_context(args, fleet)
        scope = open_scope(args, fleet, context.declarations.stacks, resolve_nodes(fleet.nodes), all_pods=True)
        return show_plan(context, scope, replace(request, groups=scope.groups), as_json=args.json)

    def work(context: ApplyContext, scope: Scope, run: Run) -> int:
        of = replace(request, groups=scope.groups)
        return reboot_nodes(context, scope, of, consent=args.yes, waits=not args.no_wait, record=run)

    return change_fleet(args, fleet, "reboot", work, all_pods=True)


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


def reboot_nodes(
    context: ApplyContext,
    scope: Scope,
    request: RebootRequest,
    *,
    consent: bool,
    waits: bool = True,
    record: Run = UNRECORDED,
) -> int:
    """Show who goes out of service, ask unless there is consent, reboot, show the results; return the exit code."""
    change = FleetChange(context, scope, record)
    pause = find_pause(scope)
    with cancel_on_signals() as cancel:
        plan = _only_in_flight(_plan(context, scope, request, cancel), pause)
    prepared = replace(plan.prepared, policy=replace(plan.prepared.policy, waits=waits))
    plan = replace(plan, prepared=prepared)
    _show(plan, scope, change.console)
    change.console.print()
    if prepared.rollout and not change.is_wanted(_question(len(prepared.rollout)), consent=consent):
        return ExitCode.FAILED

    def act(adapters: Adapters, observe: RolloutObserver, cancel: threading.Event) -> tuple[NodeResult, ...]:
        return execute_verb(plan, adapters, observe, cancel=cancel, holder=holder_of(context))

    gates = declared_gates(scope.stacks) if prepared.rollout else ()
    results = change.carry_out(reboot_steps(context, scope.stacks, plan), prepared.rollout, act, gates)
    return change.tell(results, command=COMMAND)


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
    """Return what is left of a plan that is carried out during a pause."""
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


def _question(count: int) -> str:
    nodes, them = ("1 node", "it") if count == 1 else (f"{count} nodes", "them")
    return f"reboot {nodes}, taking {them} out of service for a while?"
