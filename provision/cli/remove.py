"""`grapnel remove`: takes what grapnel has put on nodes away again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cli.driver_verb import run_verb, verb_arguments
from provision.errors import UsageError
from provision.rollout.verb_plan import DriverVerb

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    verb_arguments(parser)
    parser.add_argument(
        "--driver",
        action="store_true",
        help="remove packages, holds, pins, package sources, settings, staged drivers and grapnel-driver itself",
    )


def run(args: argparse.Namespace) -> int:
    """Remove what is named from the nodes that are selected."""
    if not args.driver:
        raise UsageError("remove is told what to remove", hint="grapnel remove --driver")
    return run_verb(args, DriverVerb.REMOVE)
