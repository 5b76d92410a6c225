"""`grapnel apply`: bring nodes to their declaration."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.apply.fleet import apply_all, settled
from provision.apply.interrupt import cancel_on_signals
from provision.apply.lock import be_only_apply
from provision.apply.model import Status
from provision.cli.options import common_arguments, load_fleet
from provision.cli.plan import build_machinery, look, machinery_arguments
from provision.errors import ExitCode, UsageError
from provision.report import make_console, open_view, render_plans, render_results, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from provision.apply.machinery import Machinery
    from provision.apply.model import Assessment, Failure, NodeResult

SUMMARY: Final = "bring nodes to their declaration"
PARALLEL: Final = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    common_arguments(parser)
    machinery_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask before machines are changed")
    parser.add_argument(
        "--parallel", type=_positive, metavar="N", help=f"nodes that are changed at once (default: {PARALLEL})"
    )
    parser.add_argument("--check", action="store_true", help="run the roles in Ansible's check mode: change nothing")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Plan, ask, change what differs, and tell what became of every node."""
    consent = args.yes or args.check
    if not consent and not sys.stdin.isatty():
        raise UsageError("apply asks before it changes machines, and there is nobody to ask", hint="add --yes")
    fleet = load_fleet(args)
    with be_only_apply(fleet.inventories, os.environ, Path.cwd()) as environment:
        machinery = build_machinery(args, fleet, check=args.check, environment=environment)
        names = [node.name for node in fleet.nodes]
        return apply_nodes(machinery, names, parallel=args.parallel or min(PARALLEL, len(names)), consent=consent)


def apply_nodes(machinery: Machinery, nodes: Sequence[str], *, parallel: int, consent: bool) -> int:
    """Look, show the plans, ask unless there is consent, carry out, show the results; return the exit code."""
    console, began = make_console(sys.stdout), time.monotonic()
    with cancel_on_signals() as cancel:
        answers = look(machinery, nodes, cancel)
    settled_at_once = {node: settled(node, answer) for node, answer in answers.items()}
    todo = [node for node, result in settled_at_once.items() if result is None]
    if any(result is None or not result.status.is_good for result in settled_at_once.values()):
        show(console, render_plans(answers))
        console.print()
    if todo and not consent:
        asked = time.monotonic()
        if not _confirm(len(todo)):
            console.print("nothing was changed")
            return ExitCode.FAILED
        began += time.monotonic() - asked
    results = _carry_out(machinery, answers, console, todo, parallel)
    show(console, render_results(results, time.monotonic() - began))
    return exit_code(results)


def _carry_out(
    machinery: Machinery,
    answers: Mapping[str, Assessment | Failure],
    console: Console,
    todo: Sequence[str],
    parallel: int,
) -> tuple[NodeResult, ...]:
    with cancel_on_signals() as cancel, open_view(console, todo, time.monotonic) as view:
        results = apply_all(machinery, answers, view, parallel=parallel, cancel=cancel)
    if todo:
        console.print()
    return results


def _confirm(nodes: int) -> bool:
    question = f"change {nodes} node{'' if nodes == 1 else 's'}? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)  # seen even when the plans go to a file
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def exit_code(results: Sequence[NodeResult]) -> int:
    """Return 0 when every node is where it should be, 130 when it was interrupted, else 1."""
    if all(result.status.is_good for result in results):
        return ExitCode.DONE
    canceled = any(result.status is Status.CANCELED for result in results)
    return ExitCode.INTERRUPTED if canceled else ExitCode.FAILED
