"""`grapnel drift`: shows what differs from the declaration on which nodes, and what mends it; changes nothing."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from provision.apply.converge import assess
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.base.errors import ExitCode
from provision.cli.session.context import build_context
from provision.cli.session.fleet import fleet_words, load_fleet
from provision.planning.drift import group
from provision.report.console import make_console
from provision.report.documents.drift import drift_document
from provision.report.drift import render_drift
from provision.report.progress.live import open_view
from provision.report.terminal import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from provision.apply.context import ApplyContext


def run(args: argparse.Namespace) -> int:
    """Gather facts, compare, and show what differs."""
    fleet = load_fleet(args)
    context = build_context(args, fleet)
    return show_drift(context, [node.name for node in fleet.nodes], apply_command(args), as_json=args.json)


def show_drift(context: ApplyContext, nodes: Sequence[str], apply: Sequence[str], *, as_json: bool) -> int:
    """Print how nodes differ; return 0 if none does, 3 if some do, 1 if one could not be compared."""
    with cancel_on_signals() as cancel, open_view(make_console(sys.stderr), tuple(nodes), time.monotonic) as view:
        answers = assess(_with_traces(context), nodes, view, cancel)
    failures = {node: one for node, one in answers.items() if isinstance(one, Failure)}
    known = {node: one for node, one in answers.items() if not isinstance(one, Failure)}
    seen = group(
        {node: one.plan for node, one in known.items()},
        {node: one.facts for node, one in known.items()},
    )
    if as_json:
        print(drift_document(seen, failures, apply))
    else:
        show(make_console(sys.stdout), render_drift(seen, failures, apply))
    if failures or seen.problems:
        return ExitCode.FAILED
    return ExitCode.CHANGES if seen.drifted else ExitCode.DONE


def _with_traces(context: ApplyContext) -> ApplyContext:
    """Return a context whose nodes are asked who changed them; `apply` has no use for it."""
    return replace(context, playbooks=replace(context.playbooks, traces=True))


def apply_command(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the words of the `grapnel apply` that sees the same declaration, inventory and archives."""
    archives = [
        word
        for name in ("payload", "bundle", "signers")
        if (path := getattr(args, name))
        for word in (f"--{name}", path)
    ]
    return ("grapnel", "apply", *fleet_words(args), *map(str, archives))
