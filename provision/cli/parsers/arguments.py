"""Defines the options of each verb, without a module of the verb: its help costs no more than its options take."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.base.errors import ExitCode
from provision.cli.parsers import further_arguments
from provision.cli.parsers.options import (
    DECLARATION,
    bundle_argument,
    cluster_arguments,
    common_arguments,
    connection_arguments,
    debug_argument,
    force_argument,
    inventory_argument,
    metrics_argument,
    nodes_argument,
    pause_arguments,
    positive,
    reason,
    recording_arguments,
    request_arguments,
    run_arguments,
    serve_arguments,
    verb_arguments,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

PARALLEL: Final = 5
SEEDS: Final = 10
MANY: Final = 1000  # nodes from which one seed is played unless more are asked for
RATES: Final = {
    "swap": "swap",
    "verify": "verify",
    "lost": "lost",
    "pods": "pods",
    "hardware": "ill_per_day",
}
PAGE: Final = "127.0.0.1:8470"
_PARTS: Final = {
    "driver": "packages, holds, pins, package sources, settings, staged drivers and grapnel-driver itself",
    "runtime": "what the container engine was given, and an engine that grapnel installed",
    "daemon": "the node daemon with its settings and state",
    "hook": "the hook with its settings and the driver inventory",
    "node": "settings of the node that belong to none of these",
}


def _init(parser: argparse.ArgumentParser) -> None:
    nodes_argument(parser, absent="all of the inventory, none where there is no inventory")
    parser.add_argument(
        "-f", "--file", type=Path, default=DECLARATION, metavar="FILE", help="what to write (default: %(default)s)"
    )
    inventory_argument(parser)
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--every-key", action="store_true", help="write every key with its default, not the first five")
    parser.add_argument("--plain", action="store_true", help="look at no machine: write the first five keys")
    parser.add_argument(
        "--from-gpu-operator",
        action="append",
        default=[],
        metavar="SOURCE",
        help="write the GpuStacks of what NVIDIA's GPU operator was told: a file with its ClusterPolicy, NVIDIADrivers "
        "and ConfigMaps, or with values of NVIDIA's DRA driver, - for standard input, or the word cluster; may be "
        "repeated",
    )
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach that cluster")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    parser.add_argument("--payload", type=Path, metavar="DIR", help="archives for nodes, as for plan")
    parser.add_argument("--json", action="store_true", help="print what was found, and could not be said, as JSON")
    debug_argument(parser)


def _check(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    parser.add_argument(
        "--explain", action="store_true", help="show every value, which level set it, and what is derived later"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _explain(parser: argparse.ArgumentParser) -> None:
    key = "of the declaration, such as driver.version (default: its sections); or `pod`, `node` or `claim`, with a name"
    parser.add_argument("key", nargs="?", default="", metavar="KEY", help=key)
    thing = "of a thing in a cluster: `explain pod NAMESPACE/NAME`, `explain node NAME`, `explain claim NAMESPACE/NAME`"
    parser.add_argument("name", nargs="?", metavar="NAME", help=thing)
    connection_arguments(parser)
    parser.set_defaults(no_cluster=False)
    debug_argument(parser)


def _plan(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    run_arguments(parser)
    bundle_argument(parser)
    force_argument(parser)
    cluster_arguments(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="save the plan there, for `grapnel apply --saved FILE` to do exactly that",
    )
    parser.add_argument("--json", action="store_true", help="print the node plans as JSON")
    parser.add_argument("--diff", action="store_true", help="show how files would change; no secrets")
    parser.add_argument(
        "--exit-code", action="store_true", help=f"exit with {ExitCode.CHANGES} when there is something to change"
    )


def _doctor(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def _simulate(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    parser.add_argument(
        "--fleet",
        type=Path,
        metavar="FILE",
        help="simulate a fleet of a file (docs/contracts/simulation-fleet) instead of the nodes of the inventory, with "
        "the pods, records and policy that they have now",
    )
    cluster_arguments(parser)
    parser.add_argument(
        "--failures",
        metavar="RATES",
        help=f"what goes wrong instead, such as swap=1%%,hardware=0.5%%; of {', '.join(RATES)}; hardware is per day",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the first seed, which is shown (default: 1)")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"how many seeds are compared (default: {SEEDS}; 1 from {MANY} nodes on)"
    )
    parser.add_argument("--start", type=_moment, metavar="TIME", help="when it begins, such as 2026-11-24T22:00+01:00")
    parser.add_argument("--json", action="store_true", help="print it as JSON (docs/contracts/simulation)")


def _stage(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    run_arguments(parser)
    bundle_argument(parser)
    cluster_arguments(parser)
    recording_arguments(parser)
    parser.add_argument(
        "--parallel", type=positive, metavar="N", help=f"how many nodes to stage at once (default: {PARALLEL})"
    )


def _apply(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    parser.add_argument(
        "--saved",
        type=Path,
        metavar="PLAN",
        help="a plan that `grapnel plan --out` has saved: exactly that is done, without a question, or nothing where "
        "nodes or declaration have changed since; nodes and options of plan are those that it was made with",
    )
    run_arguments(parser)
    force_argument(parser)
    bundle_argument(parser)
    cluster_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask before changing machines")
    parser.add_argument(
        "--parallel",
        type=positive,
        metavar="N",
        help="how many nodes to look at, stage, or change where they stand at once; how many leave service together "
        f"is declared: rollout.maxParallel, maxUnavailable (default: {PARALLEL})",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="end when only a window or a gate is waited for, instead of waiting for it",
    )
    metrics_argument(parser)
    recording_arguments(parser)
    parser.add_argument("--check", action="store_true", help="run the roles in Ansible's check mode: change nothing")


def _reboot(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser, absent="none, with --needed all")
    run_arguments(parser)
    cluster_arguments(parser)
    metrics_argument(parser)
    recording_arguments(parser)
    parser.add_argument(
        "--needed", action="store_true", help="only nodes that need a reboot: a newer kernel, /run/reboot-required"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="leave nodes alone that grapnel has rebooted after this, such as 2026-11-23T14:00:00Z (default: 24 hours "
        "ago)",
    )
    parser.add_argument("--plan", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask before rebooting machines")
    parser.add_argument(
        "--no-wait", action="store_true", help="end when only a window or a gate is waited for, instead of waiting"
    )


def _status(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    cluster_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print it as JSON (docs/contracts/status)")
    form.add_argument("--watch", action="store_true", help="show changes as they come, until the upgrade has ended")
    form.add_argument(
        "--serve",
        nargs="?",
        const=PAGE,
        metavar="ADDRESS:PORT",
        help=f"serve a live page for browsers (default: {PAGE})",
    )
    serve_arguments(parser)


def _drift(parser: argparse.ArgumentParser) -> None:
    common_arguments(parser)
    run_arguments(parser)
    bundle_argument(parser)
    parser.set_defaults(force=True)  # an edited file is a difference here, and no obstacle: nothing is overwritten
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="RUN", help="name of a run, or how it begins (default: the last one)"
    )
    inventory_argument(parser)
    debug_argument(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to write the page, - for standard output"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print it as JSON (docs/contracts/run-report)")
    form.add_argument("--list", action="store_true", help="list the runs that are kept")


def _pause(parser: argparse.ArgumentParser) -> None:
    pause_arguments(parser)
    parser.add_argument("--reason", default="", type=reason, metavar="TEXT", help="why, for everybody who meets it")


def _resume(parser: argparse.ArgumentParser) -> None:
    pause_arguments(parser)


def _skip(parser: argparse.ArgumentParser) -> None:
    request_arguments(parser)
    parser.add_argument("--undo", action="store_true", help="let upgrades begin on them again")


def _retry(parser: argparse.ArgumentParser) -> None:
    request_arguments(parser)


def _abandon(parser: argparse.ArgumentParser) -> None:
    request_arguments(parser)
    run_arguments(parser)
    parser.add_argument(
        "--uncordon",
        action="store_true",
        help="also have their node daemons offer the GPUs again, and let them take pods; nothing is verified",
    )
    parser.add_argument("--plan", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask before --uncordon")


def _rollback(parser: argparse.ArgumentParser) -> None:
    verb_arguments(parser, absent="all that were changed to the declared driver")
    parser.add_argument("--no-waves", action="store_true", help="all at once, as far as maxParallel and others allow")
    parser.add_argument(
        "--further", action="store_true", help="return nodes that have returned already one driver further"
    )

    parser.add_argument("--plan", action="store_true", help="show what would be done, and change nothing")


def _remove(parser: argparse.ArgumentParser) -> None:
    verb_arguments(parser)
    parts = parser.add_argument_group("parts, all without any of these")
    for part, text in _PARTS.items():
        parts.add_argument(f"--{part}", action="store_true", help=text)
    parser.add_argument("--plan", action="store_true", help="show what would be done, and change nothing")


def _moment(text: str) -> datetime:
    """Read a time; one without a zone is of this machine's."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.astimezone()).astimezone(UTC)


ARGUMENTS: Final[Mapping[str, Callable[[argparse.ArgumentParser], None]]] = {
    "init": _init,
    "check": _check,
    "explain": _explain,
    "plan": _plan,
    "doctor": _doctor,
    "simulate": _simulate,
    "stage": _stage,
    "apply": _apply,
    "reboot": _reboot,
    "status": _status,
    "drift": _drift,
    "report": _report,
    "pause": _pause,
    "resume": _resume,
    "skip": _skip,
    "retry": _retry,
    "abandon": _abandon,
    "rollback": _rollback,
    "remove": _remove,
    **further_arguments.ARGUMENTS,
}
