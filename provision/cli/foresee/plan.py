"""`grapnel plan`: shows what apply would change, node by node; changes nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.fleet import settled
from provision.base.errors import ExitCode
from provision.cli.foresee.saved_plan import saver
from provision.cli.foresee.stack_plan import run_if_meant
from provision.cli.session.ahead import Seen, look_ahead, show_overview
from provision.cli.session.context import ContextBuilder, build_context
from provision.cli.session.fleet import load_fleet
from provision.cli.session.scope import open_scope, with_unnamed
from provision.declaration.fleet.sources import inventory_key
from provision.report.console import make_console
from provision.report.documents.plans import plans_document
from provision.report.planned.builds import builds_document
from provision.report.planned.diffs import render_diffs
from provision.report.planned.rollout import rollout_document
from provision.report.runs.durations import NOTHING_KNOWN, Durations
from provision.report.runs.store import runs_folder
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Assessment, Failure
    from provision.cli.session.scope import Scope
    from provision.rollout.decision.prepare import Prepared


def run(args: argparse.Namespace, build: ContextBuilder | None = None) -> int:
    """Gather facts, plan, and show the plans; of GpuStacks of a cluster, what its controller would do."""
    if (shown := run_if_meant(args)) is not None:
        if any(each.is_stuck for each in shown.stacks):
            return ExitCode.FAILED
        return ExitCode.CHANGES if args.exit_code and any(each.is_change for each in shown.stacks) else ExitCode.DONE
    fleet = load_fleet(args)
    context = (build or build_context)(args, fleet)
    scope = with_unnamed(args, fleet, open_scope(args, fleet, context.declarations.stacks))
    runs = runs_folder(os.environ, inventory_key(fleet.inventories, Path.cwd()))
    last = Durations(runs).read()

    save = None
    if args.out is not None:
        save = saver(args, scope)
    words = {"as_json": args.json, "tell_changes": args.exit_code, "with_files": args.diff}
    return show_plans(context, scope, **words, last=last, save=save)


def show_plans(
    context: ApplyContext,
    scope: Scope,
    *,
    as_json: bool,
    tell_changes: bool,
    with_files: bool = False,
    last: Mapping[str, float] = NOTHING_KNOWN,
    save: Seen | None = None,
) -> int:
    """Gather facts and print the plans, and have them saved; return the exit code."""
    answers, prepared = look_ahead(context, scope, save)
    if as_json:
        print(_document(answers, prepared, scope, with_files=with_files))
    else:
        console = make_console(sys.stdout)
        if with_files:
            show(console, render_diffs(answers))
        show_overview(console, answers, prepared, scope, last)
    return _exit_code(answers, prepared, tell_changes=tell_changes)


def _document(
    answers: Mapping[str, Assessment | Failure], prepared: Prepared, scope: Scope, *, with_files: bool
) -> str:
    rollout, builds = rollout_document(prepared, scope.cluster.name), builds_document(prepared.builds)
    return plans_document(answers, rollout, builds, with_files=with_files)


def _exit_code(answers: Mapping[str, Assessment | Failure], prepared: Prepared, *, tell_changes: bool) -> int:
    results = [settled(node, answer) for node, answer in answers.items()]
    if prepared.refusals or any(result is not None and not result.is_good for result in results):
        return ExitCode.FAILED
    return ExitCode.CHANGES if tell_changes and prepared.is_change else ExitCode.DONE
