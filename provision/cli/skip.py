"""`grapnel skip`: leaves nodes out of upgrades."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cli.answers import Answers
from provision.cli.node_request import ask, open_requests, request_arguments

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    request_arguments(parser)
    parser.add_argument("--undo", action="store_true", help="let upgrades begin on them again")


def run(args: argparse.Namespace) -> int:
    """Set or take away the mark that keeps upgrades from beginning."""
    from provision.rollout.requests import skip, unskip  # noqa: PLC0415 - start-up time

    answers = Answers("skip", args.json)
    return answers.end(ask(open_requests(args), unskip if args.undo else skip, answers))
