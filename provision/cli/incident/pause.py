"""`grapnel pause` keeps further nodes from being upgraded, and `grapnel resume` ends that."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode
from provision.cli.answers import Answers
from provision.cli.session.places import find_places
from provision.cli.terminal import person
from provision.cluster import open_api
from provision.cluster.requests import LeasePauses, MixedPauses, StateFilePauses
from provision.declaration.fleet.errors import InventoryError
from provision.declaration.spec.errors import DeclarationError

if TYPE_CHECKING:
    import argparse

    from provision.cluster.requests import PausePlace


def run(args: argparse.Namespace) -> int:
    """Do what the verb is called, and say what that means."""
    place = open_place(args)
    return resume(place, as_json=args.json) if args.verb == "resume" else pause(place, args.reason, as_json=args.json)


def open_place(args: argparse.Namespace) -> PausePlace:
    """Return where a pause is kept: with the node state that the other verbs find by the same options.

    Where the nodes belong to several places, it is kept in all of them: a rollout may be about some nodes only.
    """
    try:
        places = find_places(args)
    except (DeclarationError, InventoryError):
        api = None if args.no_cluster else open_api(args.kubeconfig, args.context, os.environ)
        if api is None:
            raise
        return LeasePauses(api)  # a broken declaration is no reason not to pause a cluster
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
