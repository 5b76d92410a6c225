"""`grapnel resume`: ends a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.base.errors import ExitCode
from provision.cli.answers import Answers
from provision.cli.pause import open_place, pause_arguments

if TYPE_CHECKING:
    import argparse

    from provision.cluster.requests import PausePlace


def configure(parser: argparse.ArgumentParser) -> None:
    pause_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """End the pause, and say which it was."""
    return resume(open_place(args), as_json=args.json)


def resume(place: PausePlace, *, as_json: bool = False) -> int:
    """End the pause, and say which it was."""
    before = place.resume()
    answers = Answers("resume", as_json, place.name, before=before)
    if before is None:
        answers.say(f"upgrades of {place.name} are not paused")
        return answers.end(ExitCode.DONE)
    answers.say(f"upgrades of {place.name} go on; they were paused {before}")
    answers.say("a running apply heeds it within 10 s; where none runs, `grapnel apply` begins one")
    return answers.end(ExitCode.DONE)
