"""`grapnel rollback`: returns nodes to the driver that they had before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.cli.driver_verb import run_verb, verb_arguments
from provision.errors import UsageError
from provision.rollout.driver_verbs import DriverVerb

if TYPE_CHECKING:
    import argparse

SUMMARY: Final = "return nodes to the driver that they had before"


def configure(parser: argparse.ArgumentParser) -> None:
    verb_arguments(parser)
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="hosts or groups of the inventory, as in --limit")


def run(args: argparse.Namespace) -> int:
    """Return the named nodes, one after the other, to the driver before."""
    if args.limit:
        raise UsageError("rollback names its nodes without --limit", hint="grapnel rollback NODE...")
    args.limit = ",".join(args.nodes)
    return run_verb(args, DriverVerb.BACK)
