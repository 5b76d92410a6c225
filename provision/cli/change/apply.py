"""`grapnel apply`: brings nodes to their declaration."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.gate import needs_staging
from provision.apply.interrupt import cancel_on_signals
from provision.apply.lock import APPLY_VARIABLE, Claim, lock_machines
from provision.apply.model import Failure, Status
from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.cluster import declared_gates, open_scope, with_unnamed
from provision.cli.fleet import load_fleet
from provision.cli.foresee import saved_plan
from provision.cli.foresee.plan import (
    build_context,
    look_ahead,
    show_overview,
)
from provision.cli.listening import open_listeners
from provision.cli.parsers.arguments import PARALLEL
from provision.cli.recording import UNRECORDED, recorded
from provision.cli.terminal import outlasting, person, print_error, say
from provision.declaration.fleet.resolve import resolve_nodes
from provision.declaration.spec.text.excerpt import few
from provision.report.console import make_console
from provision.report.results import render_results
from provision.report.terminal import show
from provision.rollout.adapters import Adapters
from provision.rollout.decision.prepare import only_in_flight
from provision.rollout.execution import Job, execute
from provision.rollout.gates import GateKeeper
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.steps.node_steps import NodeSteps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from provision.apply.context import ApplyContext
    from provision.apply.model import Assessment, NodeResult
    from provision.cli.cluster import Scope
    from provision.cli.foresee.plan import ContextBuilder, Seen
    from provision.cli.recording import Run
    from provision.declaration.fleet.model import Fleet
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.interface.pause import Pause


def run(args: argparse.Namespace, build: ContextBuilder | None = None) -> int:
    """Plan, ask, change what differs, and show the result of every node."""
    saved = None
    if args.plan is not None:
        saved = saved_plan.read_plan(args)
    consent = args.yes or args.check or saved is not None
    if not consent and not sys.stdin.isatty():
        raise UsageError(
            "apply asks before it changes machines, and standard input is not a terminal", hint="add --yes"
        )
    fleet = load_fleet(args)
    addresses = resolve_nodes(fleet.nodes)
    with lock_machines(claim_of(fleet, addresses), os.environ) as environment:

        def work(run: Run) -> int:
            context = (build or build_context)(args, fleet, check=args.check, environment=environment)
            scope = open_scope(args, fleet, context.declarations.stacks, addresses)
            scope = replace(with_unnamed(args, fleet, scope), metrics_file=args.metrics_file)
            parallel = args.parallel or min(PARALLEL, len(scope.stacks))
            require = None if saved is None else saved_plan.holder(args, saved, scope)
            waits = not args.no_wait
            return apply_nodes(
                context, scope, parallel=parallel, consent=consent, waits=waits, record=run, require=require
            )

        return recorded(args, fleet, "apply", work)


def claim_of(fleet: Fleet, addresses: Mapping[str, frozenset[str]]) -> Claim:
    """Return the machines of a fleet, for which other applies have to wait."""
    inventory = ", ".join(fleet.inventories) or "the inventory of ansible.cfg"
    machines = {node.name: node.endpoint.spellings(addresses[node.name]) for node in fleet.nodes}
    return Claim(inventory, machines, person())


def apply_nodes(  # noqa: PLR0913 - what a command line says
    context: ApplyContext,
    scope: Scope,
    *,
    parallel: int,
    consent: bool,
    waits: bool = True,
    record: Run = UNRECORDED,
    require: Seen | None = None,
) -> int:
    """Gather facts, show the plans, ask unless there is consent, apply, show the results; return the exit code.

    ``require`` is asked before anything is shown, and raises where that is not to be applied.
    """
    console, began = make_console(outlasting(record.people)), time.monotonic()
    pause = None if context.playbooks.check else find_pause(scope)
    answers, prepared = look_ahead(context, scope, require)
    prepared = prepared if pause is None else only_in_flight(prepared, pause)
    prepared = replace(prepared, policy=replace(prepared.policy, waits=waits))
    record.planned(answers)
    if prepared.is_change or not all(_is_as_declared(answer) for answer in answers.values()):
        show_overview(console, answers, prepared, scope, record.durations)
        console.print()
    if prepared.is_change and not consent:
        asked = time.monotonic()
        if not _confirm(prepared):
            record.declined()
            console.print("nothing was changed")
            return ExitCode.FAILED
        began += time.monotonic() - asked
    known = {
        name: each for name, each in answers.items() if not isinstance(each, Failure) and not needs_staging(each.plan)
    }
    steps = NodeSteps(context, scope.stacks, known)
    keeper = GateKeeper(declared_gates(scope.stacks) if prepared.rollout else ())
    listeners = open_listeners(scope, holder=holder_of(context), metrics_file=scope.metrics_file)
    adapters = Adapters(
        cluster=scope.cluster,
        steps=steps,
        clock=scope.clock,
        poll_s=scope.poll_s,
        publish=listeners.see,
        gates=keeper,
    )
    job = Job(context=context, adapters=adapters, prepared=prepared, answers=answers, stacks=scope.stacks, known=known)
    with cancel_on_signals() as cancel, record.view(console, prepared.todo) as view, keeper:
        observe = record.observing(listeners.observing(view))
        done = execute(job, observe, parallel=parallel, cancel=cancel, holder=holder_of(context))
    if prepared.is_change:
        console.print()
    record.results(done.results, time.monotonic() - began)
    show(console, render_results(done.results, time.monotonic() - began))
    for complaint in done.complaints:
        print_error(complaint)
    for untold in listeners.close():
        say(f"· {untold}", sys.stderr)
    return exit_code(done.results) or (ExitCode.FAILED if done.complaints else ExitCode.DONE)


def find_pause(scope: Scope) -> Pause | None:
    """Return the pause, having said what is done in spite of it; raise where that is nothing.

    Nodes that are out of service already are brought to their end: a pause must not leave them so.
    """
    pause = scope.cluster.paused()
    if pause is None:
        return None
    views = scope.cluster.observe(tuple(scope.stacks)).values()
    flying = [
        view.name
        for view in views
        if not isinstance(view, NodeProblem) and view.record is not None and not view.record.phase.is_over
    ]
    if not flying:
        raise GrapnelError(
            f"upgrades are paused {pause}",
            hint="`grapnel resume` ends it; `grapnel status` shows how the nodes stand. Nothing was changed",
        )
    begun = f"what was begun on {few(flying)} is finished, and nothing else is changed"
    say(f"upgrades are paused {pause}; {begun}", sys.stderr)
    return pause


def _is_as_declared(answer: Assessment | Failure) -> bool:
    return not isinstance(answer, Failure) and answer.plan.is_empty


def holder_of(context: ApplyContext) -> str:
    """Return the holder of the lease: the same name for the same machines, so that nobody has to wait after a crash.

    Two that run at once never have the same one: the lock keeps them apart.
    """
    lock = Path(context.playbooks.environment.get(APPLY_VARIABLE, "apply")).stem
    return f"{person()}/{lock}"


def _confirm(prepared: Prepared) -> bool:
    nodes, out = len(prepared.todo), len(prepared.rollout)
    what = f"change {nodes} node{'' if nodes == 1 else 's'}" if nodes else "change the cluster"
    aside = f", taking {out} of them out of service for a while" if out else ""
    print(f"{what}{aside}? [y/N] ", end="", file=sys.stderr, flush=True)  # seen even when the plans go to a file
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def exit_code(results: Sequence[NodeResult]) -> int:
    """Return 0 when every node is where it should be, 130 when it was interrupted, else 1."""
    if all(result.is_good for result in results):
        return ExitCode.DONE
    canceled = any(result.status is Status.CANCELED for result in results)
    return ExitCode.INTERRUPTED if canceled else ExitCode.FAILED
