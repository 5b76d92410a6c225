"""`grapnel skip` leaves nodes out of upgrades, and `grapnel retry` has those that failed tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cli.answers import Answers
from provision.cli.incident.node_request import ask, at_work, open_requests
from provision.rollout.requests import retry, skip, unskip

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Set or take away the mark that keeps upgrades from beginning, or ask for another try.

    The engine at work makes it, or the controller; where there is neither, the next one.
    """
    asking, answers = open_requests(args), Answers(args.verb, args.json)
    if args.verb == "skip":
        return answers.end(ask(asking, unskip if args.undo else skip, answers))
    engine, controller = at_work(asking)
    return answers.end(ask(asking, lambda found: retry(found, engine, controller), answers))
