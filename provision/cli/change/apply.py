"""`grapnel apply`: brings nodes to their declaration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.apply.gate import needs_staging
from provision.apply.model import Failure
from provision.base.errors import ExitCode
from provision.cli.foresee import saved_plan
from provision.cli.parsers.arguments import PARALLEL
from provision.cli.session.ahead import look_ahead, show_overview
from provision.cli.session.fleet import load_fleet
from provision.cli.session.recording import UNRECORDED
from provision.cli.session.scope import declared_gates, with_unnamed
from provision.cli.session.work import FleetChange, change_fleet, find_pause, holder_of, require_consent
from provision.rollout.decision.prepare import only_in_flight
from provision.rollout.execution import Job, execute
from provision.rollout.steps.interface_steps import apply_steps
from provision.rollout.steps.node_steps import NodeSteps

if TYPE_CHECKING:
    import argparse
    import threading

    from provision.apply.context import ApplyContext
    from provision.apply.model import Assessment
    from provision.cli.session.ahead import Seen
    from provision.cli.session.context import ContextBuilder
    from provision.cli.session.recording import Run
    from provision.cli.session.scope import Scope
    from provision.rollout.adapters import Adapters
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.execution import ApplyResult
    from provision.rollout.interface.progress import RolloutObserver


def run(args: argparse.Namespace, build: ContextBuilder | None = None) -> int:
    """Plan, ask, change what differs, and show the result of every node."""
    saved = None
    if args.saved is not None:
        saved = saved_plan.read_plan(args)
    consent = args.yes or args.check or saved is not None
    if not consent:
        require_consent(args, "apply")
    fleet = load_fleet(args)

    def work(context: ApplyContext, scope: Scope, run: Run) -> int:
        scope = with_unnamed(args, fleet, scope)
        parallel = args.parallel or min(PARALLEL, len(scope.stacks))
        require = None if saved is None else saved_plan.holder(args, saved, scope)
        waits = not args.no_wait
        return apply_nodes(context, scope, parallel=parallel, consent=consent, waits=waits, record=run, require=require)

    return change_fleet(args, fleet, "apply", work, build=build, check=args.check)


def apply_nodes(
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
    change = FleetChange(context, scope, record)
    pause = None if context.playbooks.check else find_pause(scope)
    answers, prepared = look_ahead(context, scope, require)
    prepared = prepared if pause is None else only_in_flight(prepared, pause)
    prepared = replace(prepared, policy=replace(prepared.policy, waits=waits))
    record.planned(answers)
    if prepared.is_change or not all(_is_as_declared(answer) for answer in answers.values()):
        show_overview(change.console, answers, prepared, scope, record.durations)
        change.console.print()
    if prepared.is_change and not change.is_wanted(_question(prepared), consent=consent):
        return ExitCode.FAILED
    known = {
        name: each for name, each in answers.items() if not isinstance(each, Failure) and not needs_staging(each.plan)
    }

    def act(adapters: Adapters, observe: RolloutObserver, cancel: threading.Event) -> ApplyResult:
        job = Job(
            context=context, adapters=adapters, prepared=prepared, answers=answers, stacks=scope.stacks, known=known
        )
        return execute(job, observe, parallel=parallel, cancel=cancel, holder=holder_of(context))

    gates = declared_gates(scope.stacks) if prepared.rollout else ()
    steps = apply_steps(NodeSteps(context, scope.stacks, known), prepared)
    done = change.carry_out(steps, prepared.todo, act, gates)
    return change.tell(done.results, done.complaints)


def _is_as_declared(answer: Assessment | Failure) -> bool:
    return not isinstance(answer, Failure) and answer.plan.is_empty


def _question(prepared: Prepared) -> str:
    nodes, out = len(prepared.todo), len(prepared.leaving)
    what = f"change {nodes} node{'' if nodes == 1 else 's'}" if nodes else "change the cluster"
    aside = f", taking {out} of them out of service for a while" if out else ""
    return f"{what}{aside}?"
