"""`grapnel drift`: shows what differs from the declaration on which nodes, and what mends it; changes nothing."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from provision.apply.converge import assess
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.cli.options import DECLARATION, common_arguments, load_fleet
from provision.cli.plan import CHANGES, build_context, bundle_argument, run_arguments
from provision.errors import ExitCode
from provision.report import drift_document, make_console, open_view, render_drift, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from provision.apply.context import ApplyContext
    from provision.node_plan import NodePlan

SUMMARY: Final = "show what differs from the declaration, and what mends it"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `--json` to the options of `plan`."""
    common_arguments(parser)
    run_arguments(parser)
    bundle_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def run(args: argparse.Namespace) -> int:
    """Gather facts, compare, and show what differs."""
    fleet = load_fleet(args)
    context = build_context(args, fleet)
    return show_drift(context, [node.name for node in fleet.nodes], apply_command(args), as_json=args.json)


def show_drift(context: ApplyContext, nodes: Sequence[str], apply: Sequence[str], *, as_json: bool) -> int:
    """Print how nodes differ; return 0 if none does, 3 if some do, 1 if one could not be compared."""
    with cancel_on_signals() as cancel, open_view(make_console(sys.stderr), tuple(nodes), time.monotonic) as view:
        answers = assess(context, nodes, view, cancel)
    failures = {node: one for node, one in answers.items() if isinstance(one, Failure)}
    plans = {node: one.plan for node, one in answers.items() if not isinstance(one, Failure)}
    if as_json:
        print(drift_document(plans, failures, apply))
    else:
        show(make_console(sys.stdout), render_drift(plans, failures, apply))
    return ExitCode.FAILED if failures else _exit_code(plans.values())


def _exit_code(plans: Iterable[NodePlan]) -> int:
    every = tuple(plans)
    if any(plan.problems for plan in every):
        return ExitCode.FAILED
    return ExitCode.DONE if all(plan.is_empty for plan in every) else CHANGES


def apply_command(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the words of the `grapnel apply` that sees the same declaration, inventory and archives."""
    file = () if args.file == DECLARATION else ("-f", str(args.file))
    inventories = (word for path in args.inventory for word in ("-i", path))
    archives = [word for name in ("payload", "bundle") if (path := getattr(args, name)) for word in (f"--{name}", path)]
    return ("grapnel", "apply", *file, *inventories, *map(str, archives))
