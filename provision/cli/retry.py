"""`grapnel retry`: has nodes that failed tried again, by the engine that is at work, or by the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cli.answers import Answers
from provision.cli.node_request import ask, at_work, open_requests, request_arguments

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    request_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the engine at work, or the controller, for another try; where there is neither, the next one makes it."""
    from provision.rollout.requests import retry  # noqa: PLC0415 - start-up time

    asking = open_requests(args)
    engine, controller = at_work(asking)
    answers = Answers("retry", args.json)
    return answers.end(ask(asking, lambda found: retry(found, engine, controller), answers))
