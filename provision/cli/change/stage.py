"""`grapnel stage`: prepares drivers on nodes while their GPUs are in use."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from provision.apply.interrupt import cancel_on_signals
from provision.apply.lock import lock_machines
from provision.cli.change.apply import claim_of, exit_code
from provision.cli.cluster import open_scope
from provision.cli.fleet import load_fleet
from provision.cli.foresee.plan import assess_fleet, build_context
from provision.cli.parsers.arguments import PARALLEL
from provision.cli.recording import UNRECORDED, recorded
from provision.declaration.fleet.resolve import resolve_nodes
from provision.report.console import make_console
from provision.report.results import render_results
from provision.report.terminal import show
from provision.rollout.adapters import Adapters
from provision.rollout.execution import Job, stage_nodes
from provision.rollout.steps.node_steps import NodeSteps

if TYPE_CHECKING:
    import argparse

    from provision.apply.context import ApplyContext
    from provision.cli.cluster import Scope
    from provision.cli.recording import Run


def run(args: argparse.Namespace) -> int:
    """Stage what differs, and show the result of every node. Nothing that runs is changed, so nobody is asked."""
    fleet = load_fleet(args)
    addresses = resolve_nodes(fleet.nodes)
    with lock_machines(claim_of(fleet, addresses), os.environ) as environment:

        def work(run: Run) -> int:
            context = build_context(args, fleet, environment=environment)
            scope = open_scope(args, fleet, context.declarations.stacks, addresses)
            parallel = args.parallel or min(PARALLEL, len(scope.stacks))
            return stage_fleet(context, scope, parallel=parallel, record=run)

        return recorded(args, fleet, "stage", work)


def stage_fleet(context: ApplyContext, scope: Scope, *, parallel: int, record: Run = UNRECORDED) -> int:
    """Gather facts, stage, show the results; return the exit code."""
    console, began = make_console(record.people), time.monotonic()
    with cancel_on_signals() as cancel:
        answers, prepared = assess_fleet(context, scope, cancel)
    record.planned(answers)
    adapters = Adapters(cluster=scope.cluster, steps=NodeSteps(context, scope.stacks))
    job = Job(context=context, adapters=adapters, prepared=prepared, answers=answers, stacks=scope.stacks)
    with cancel_on_signals() as cancel, record.view(console, prepared.staging) as view:
        results = stage_nodes(job, record.observing(view), parallel=parallel, cancel=cancel)
    record.results(results, time.monotonic() - began)
    show(console, render_results(results, time.monotonic() - began))
    return exit_code(results)
