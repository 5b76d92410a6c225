"""`grapnel rollback`: returns nodes to the driver that they had before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cli.driver_verb import run_verb, verb_arguments
from provision.errors import UsageError
from provision.rollout.verb_plan import DriverVerb, Extent

if TYPE_CHECKING:
    import argparse

    from provision.cli.plan import ContextBuilder


def configure(parser: argparse.ArgumentParser) -> None:
    verb_arguments(parser)
    parser.add_argument(
        "nodes",
        nargs="*",
        metavar="NODE",
        help="hosts or groups of the inventory, as in --limit (default: all that were changed to the declared driver)",
    )
    parser.add_argument("--no-waves", action="store_true", help="all at once, as far as maxParallel and others allow")
    parser.add_argument(
        "--further", action="store_true", help="return nodes that have returned already one driver further"
    )


def run(args: argparse.Namespace, build: ContextBuilder | None = None) -> int:
    """Return nodes to the driver before, wave by wave: those that are named, or all of the last upgrade."""
    if args.limit:
        raise UsageError("rollback names its nodes without --limit", hint="grapnel rollback NODE...")
    if args.further and not args.nodes:
        raise UsageError("--further is about nodes that are named", hint="grapnel rollback --further NODE...")
    args.limit = ",".join(args.nodes)
    extent = Extent(undoes_upgrade=not args.nodes, in_waves=not args.no_waves, further=args.further)
    return run_verb(args, DriverVerb.BACK, extent, build)
