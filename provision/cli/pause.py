"""`grapnel pause`: keeps further nodes from being upgraded."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.cli.cluster import cluster_arguments
from provision.cli.options import debug_argument, inventories_of, inventory_argument
from provision.cli.person import person
from provision.cli.terminal import say
from provision.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from provision.cluster.requests import PausePlace

SUMMARY: Final = "let no further node be upgraded until `grapnel resume`; nodes in flight are finished"


def configure(parser: argparse.ArgumentParser) -> None:
    pause_arguments(parser)
    parser.add_argument("--reason", default="", type=reason, metavar="TEXT", help="why, for everybody who meets it")


def reason(text: str) -> str:
    """Return a reason as one line that is not too long to be shown."""
    from provision.cluster.pause import MAX_TEXT  # noqa: PLC0415 - start-up time

    line = " ".join(text.split())
    if len(line) > MAX_TEXT:
        raise argparse.ArgumentTypeError(f"it has {len(line)} characters, and {MAX_TEXT} may be")
    return line


def pause_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is paused: a cluster, or the machines of an inventory that has none."""
    inventory_argument(parser)
    debug_argument(parser)
    cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Pause, and say what that means."""
    return pause(open_place(args), args.reason)


def open_place(args: argparse.Namespace) -> PausePlace:
    """Return where the pause is kept: with the node state that the other verbs find by the same options."""
    from provision.cluster import open_api, state_file_path  # noqa: PLC0415 - start-up time
    from provision.cluster.requests import LeasePauses, StateFilePauses  # noqa: PLC0415 - start-up time
    from provision.fleet.sources import inventory_key  # noqa: PLC0415 - start-up time

    if args.no_cluster and (args.kubeconfig or args.context):
        raise UsageError("--no-cluster cannot be combined with --kubeconfig or --context", hint="leave one of them out")
    api = None if args.no_cluster else open_api(args.kubeconfig, args.context, os.environ)
    if api is not None:
        return LeasePauses(api)
    return StateFilePauses(state_file_path(inventory_key(inventories_of(args), Path.cwd()), os.environ))


def pause(place: PausePlace, why: str) -> int:
    """Pause, and say what that means."""
    written, before = place.pause(person(), why)
    say(f"upgrades of {place.name} are paused {written}")
    if before is not None:
        say(f"that replaces the pause {before}")
    say("nodes that are out of service are finished, and no other begins: a running apply heeds it within 10 s,")
    say("waits, and goes on after `grapnel resume`. `grapnel status` shows how the nodes stand")
    return ExitCode.DONE
