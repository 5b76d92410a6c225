"""Names the verbs, each with what it does in one line: all that `grapnel --help` needs, so that it imports no verb.

They are in the order of a day's work, those of an incident together; `docs/command-line.md` has the same table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "declare": {
        "init": "write a declaration: what machines are already, the keys that matter first, or every key",
        "check": "report everything that is wrong with the declaration",
        "explain": "say what a key of the declaration means, and why a pod, a node or a claim has the GPUs that it has",
    },
    "look ahead": {
        "plan": "show what apply would change on each node",
        "doctor": "show what would make driver changes fail, for all nodes",
        "simulate": "play a roll-out in virtual time and show how long it takes and what may happen",
    },
    "change nodes": {
        "stage": "download and build drivers, and other versions of engines, so that a later apply only swaps them",
        "apply": "bring nodes to their declaration",
        "reboot": "reboot nodes, each out of service, wave by wave",
    },
    "see how it stands": {
        "status": "show how the upgrade of nodes stands, and what to do",
        "drift": "show what differs from the declaration, and what mends it",
        "report": "write what happened in a run as one HTML page",
    },
    "when an upgrade goes wrong": {
        "pause": "let no further node be upgraded until `grapnel resume`; nodes in flight are finished",
        "resume": "end a pause: further nodes may be upgraded",
        "skip": "let no upgrade begin on nodes, until `--undo`",
        "retry": "have nodes that failed tried again by the apply that runs",
        "abandon": "take nodes out of their upgrade and leave them to you, as they stand",
        "rollback": "return nodes to the driver that they had before",
    },
    "leave": {"remove": "take grapnel away from nodes, or parts of it, and give back what was there before"},
    "around them": {
        "bundle": "make or check a bundle: drivers and engines for nodes without a network",
        "help": "print a page of the documents, by the name that messages give it, or the help of a verb",
        "completion": "print the script that completes the command line of a shell",
        "version": "show the versions of grapnel, of its collection and of what nodes would get",
    },
    "run by the chart, in a cluster": {
        "controller": "bring the nodes of a cluster to its GpuStacks, from within it",
        "agent": "do on a node what the controller asks for; not for people",
        "uninstall": "end the controller once nothing is in flight, before its chart goes; not for people",
    },
}
_ROOMS: Final = ("declare", "foresee", "change", "look", "incident", "leave", "around", "in_cluster")  # of the groups
_SHARED: Final[Mapping[str, str]] = {"resume": "pause", "retry": "skip"}  # verbs without a module of their own
MODULES: Final[Mapping[str, str]] = {
    verb: f"{room}.{_SHARED.get(verb, verb)}"
    for room, verbs in zip(_ROOMS, GROUPS.values(), strict=True)
    for verb in verbs
}  # below provision.cli
VERBS: Final[Mapping[str, str]] = {name: text for verbs in GROUPS.values() for name, text in verbs.items()}
