"""`grapnel remove`: takes grapnel away from nodes, and gives back what was there before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.apply.removal import ALL_PARTS, Part
from provision.cli.driver_verb import run_verb, verb_arguments
from provision.rollout.verbs.removing import Removing

if TYPE_CHECKING:
    import argparse

_HELP: Final = {
    Part.DRIVER: "packages, holds, pins, package sources, settings, staged drivers and grapnel-driver itself",
    Part.RUNTIME: "what the container engine was given, and an engine that grapnel installed",
    Part.DAEMON: "the node daemon with its settings and state",
    Part.HOOK: "the hook with its settings and the driver inventory",
    Part.NODE: "settings of the node that belong to none of these",
}


def configure(parser: argparse.ArgumentParser) -> None:
    verb_arguments(parser)
    parts = parser.add_argument_group("parts, all without any of these")
    for part, text in _HELP.items():
        parts.add_argument(f"--{part}", action="store_true", help=text)
    parser.add_argument("--plan", action="store_true", help="show what would be done, and change nothing")


def run(args: argparse.Namespace) -> int:
    """Take what is named away from the nodes that are selected."""
    parts = frozenset(part for part in Part if getattr(args, part.value)) or ALL_PARTS
    return run_verb(args, Removing(parts=parts))
