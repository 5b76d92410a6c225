"""`grapnel pause`: keeps further nodes from being upgraded."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode
from provision.cli.answers import Answers, answer_arguments
from provision.cli.cluster import cluster_arguments
from provision.cli.options import debug_argument, declaration_argument, inventory_argument
from provision.cli.person import person
from provision.cli.places import find_places

if TYPE_CHECKING:
    from provision.cluster.requests import PausePlace


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
    declaration_argument(parser)
    inventory_argument(parser)
    debug_argument(parser)
    cluster_arguments(parser)
    answer_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Pause, and say what that means."""
    return pause(open_place(args), args.reason, as_json=args.json)


def open_place(args: argparse.Namespace) -> PausePlace:
    """Return where a pause is kept: with the node state that the other verbs find by the same options.

    Where the nodes belong to several places, it is kept in all of them: a rollout may be about some nodes only.
    """
    from provision.cluster import open_api  # noqa: PLC0415 - start-up time
    from provision.cluster.requests import LeasePauses, MixedPauses, StateFilePauses  # noqa: PLC0415 - start-up time
    from provision.fleet.errors import InventoryError  # noqa: PLC0415 - start-up time
    from provision.spec.errors import DeclarationError  # noqa: PLC0415 - start-up time

    try:
        places = find_places(args)
    except (DeclarationError, InventoryError):
        api = None if args.no_cluster else open_api(args.kubeconfig, args.context, os.environ)
        if api is None:
            raise
        return LeasePauses(api)  # a declaration that is broken keeps nobody from pausing a cluster
    in_file = StateFilePauses(places.state_file)
    if places.api is None or (places.in_file and not places.in_cluster):
        return in_file
    on_lease = LeasePauses(places.api)
    return MixedPauses(in_file, on_lease) if places.in_file else on_lease


def pause(place: PausePlace, why: str, *, as_json: bool = False) -> int:
    """Pause, and say what that means."""
    written, before = place.pause(person(), why)
    answers = Answers("pause", as_json, place.name, written, before)
    answers.say(f"upgrades of {place.name} are paused {written}")
    if before is not None:
        answers.say(f"that replaces the pause {before}")
    answers.say(
        "nodes that are out of service are finished, and no other begins: a running apply heeds it within 10 s,"
    )
    answers.say("waits, and goes on after `grapnel resume`. `grapnel status` shows how the nodes stand")
    return answers.end(ExitCode.DONE)
