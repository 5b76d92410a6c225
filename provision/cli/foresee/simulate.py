"""`grapnel simulate`: plays a roll-out in virtual time with the real engine; touches nothing."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.parsers.arguments import MANY, RATES, SEEDS
from provision.cli.session.fleet import load_fleet
from provision.cli.session.scope import open_scope
from provision.cli.terminal import say
from provision.report.console import make_console
from provision.report.simulation import render_simulation, simulation_document
from provision.report.terminal import age, show
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.simulate.fleet_file import load_scenario, share_of
from provision.rollout.simulate.many import play_many
from provision.rollout.simulate.observed import scenario_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from provision.rollout.simulate.scenario import Faults, Scenario

TELL_EACH_S: Final = 2.0


def run(args: argparse.Namespace) -> int:
    """Play, and print what happened; 1 when the roll-out does not come to its end with some seed."""
    if args.seeds is not None and args.seeds < 1:
        raise UsageError("--seeds is less than 1", hint="one is played at least")
    start = args.start or datetime.now(UTC).replace(microsecond=0)
    scenario = _scenario(args, start)
    if args.failures is not None:
        scenario = replace(scenario, faults=read_failures(args.failures, scenario.faults))
    seeds = args.seeds or (SEEDS if len(scenario.nodes) < MANY else 1)
    first, outcomes = play_many(scenario, range(args.seed, args.seed + seeds), _teller(len(scenario.nodes)))
    if args.json:
        print(simulation_document(scenario, first, outcomes))
    else:
        show(make_console(sys.stdout), render_simulation(scenario, first, outcomes))
    return ExitCode.FAILED if any(one.stop for one in outcomes) else ExitCode.DONE


def _teller(nodes: int) -> Callable[[int, int, float], None]:
    """Return what says on a terminal how far a seed is, now and then."""
    said_at = time.monotonic()

    def tell(seed: int, over: int, at_s: float) -> None:
        nonlocal said_at
        if sys.stderr.isatty() and time.monotonic() - said_at >= TELL_EACH_S:
            said_at = time.monotonic()
            say(f"· seed {seed}: of {nodes} nodes {over} have come to an end after {age(at_s)}", sys.stderr)

    return tell


def _scenario(args: argparse.Namespace, start: datetime) -> Scenario:
    if args.fleet is None:
        return _of_inventory(args, start)
    if args.limit or args.inventory or args.kubeconfig or args.context or args.no_cluster:
        raise UsageError(
            "--fleet has its nodes in a file", hint="leave it out, or what is about an inventory and a cluster"
        )
    return load_scenario(args.fleet, start)


def _of_inventory(args: argparse.Namespace, start: datetime) -> Scenario:
    """Return the fleet as its Nodes are now. No machine is asked: a driver is what its node's last record says."""
    fleet = load_fleet(args)
    stacks = {node.name: node.stack for node in fleet.nodes}
    scope = open_scope(args, fleet, stacks)
    views = scope.cluster.observe(tuple(stacks))
    problems = [each for each in views.values() if isinstance(each, NodeProblem)]
    if len(problems) == len(views):
        raise GrapnelError(f"there is no node to simulate: {problems[0].message}", hint=problems[0].hint)
    for problem in problems:
        say(f"· not simulated: {problem.message}", sys.stderr)
    return scenario_of(views, stacks, scope.groups, start)


def read_failures(text: str, before: Faults) -> Faults:
    """Return the faults with the rates that are written; raises UsageError."""
    found = before
    for part in text.split(","):
        kind, _, rate = part.strip().partition("=")
        try:
            share = share_of(rate) if rate.endswith("%") else -1.0
        except ValueError:
            share = -1.0
        if kind not in RATES or not 0 <= share <= 1:
            hint = f"a list such as swap=1%,hardware=0.5%; of {', '.join(RATES)}"
            raise UsageError(f"'{part.strip()}' is not a rate of failures", hint=hint)
        found = replace(found, **{RATES[kind]: share})
    return found
