"""`grapnel stage`: prepares drivers and engines on nodes while their GPUs are in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.apply.interrupt import cancel_on_signals
from provision.cli.parsers.arguments import PARALLEL
from provision.cli.session.ahead import assess_fleet
from provision.cli.session.fleet import load_fleet
from provision.cli.session.recording import UNRECORDED
from provision.cli.session.work import FleetChange, change_fleet
from provision.rollout.adapters import Adapters
from provision.rollout.execution import Job, stage_nodes
from provision.rollout.steps.node_steps import NodeSteps

if TYPE_CHECKING:
    import argparse

    from provision.apply.context import ApplyContext
    from provision.cli.session.recording import Run
    from provision.cli.session.scope import Scope


def run(args: argparse.Namespace) -> int:
    """Stage what differs, and show the result of every node. Nothing that runs is changed: no consent is asked for."""

    def work(context: ApplyContext, scope: Scope, run: Run) -> int:
        return stage_fleet(context, scope, parallel=args.parallel or min(PARALLEL, len(scope.stacks)), record=run)

    return change_fleet(args, load_fleet(args), "stage", work)


def stage_fleet(context: ApplyContext, scope: Scope, *, parallel: int, record: Run = UNRECORDED) -> int:
    """Gather facts, stage, show the results; return the exit code."""
    change = FleetChange(context, scope, record)
    with cancel_on_signals() as cancel:
        answers, prepared = assess_fleet(context, scope, cancel)
    record.planned(answers)
    job = Job(
        context=context,
        adapters=Adapters(cluster=scope.cluster, steps=NodeSteps(context, scope.stacks)),
        prepared=prepared,
        answers=answers,
        stacks=scope.stacks,
    )
    with cancel_on_signals() as cancel, record.view(change.console, prepared.staging) as view:
        results = stage_nodes(job, record.observing(view), parallel=parallel, cancel=cancel)
    return change.tell(results)
