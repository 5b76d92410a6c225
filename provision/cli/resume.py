"""`grapnel resume`: ends a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cli.pause import open_place, pause_arguments
from provision.cli.terminal import say
from provision.errors import ExitCode

if TYPE_CHECKING:
    import argparse

    from provision.cluster.requests import PausePlace


def configure(parser: argparse.ArgumentParser) -> None:
    pause_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """End the pause, and say which it was."""
    return resume(open_place(args))


def resume(place: PausePlace) -> int:
    """End the pause, and say which it was."""
    before = place.resume()
    if before is None:
        say(f"upgrades of {place.name} are not paused")
        return ExitCode.DONE
    say(f"upgrades of {place.name} go on; they were paused {before}")
    say("a running apply heeds it within 10 s; where none runs, `grapnel apply` begins one")
    return ExitCode.DONE
