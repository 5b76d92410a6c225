"""Measures planning nodes in a process with limits, compared with the same plans in this process.

Both alternate in each round, with the facts of a real node with driver and engine. The first plan of a new process
includes its start. Run: python3 bench/planning.py [--nodes 100] [--rounds 10]
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provision.apply.declarations import Declarations
from provision.apply.planning.bounded import BoundedPlanner
from provision.fleet.facts import parse_facts
from provision.payload.model import Artifact, Payload
from provision.planner.plan import plan_node
from provision.spec.model import Driver, KernelModule, StackSpec

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE = Path(__file__).parents[1] / "docs/contracts/node-facts/good/configured-trixie.json"
PAYLOAD = Payload(
    hook=Artifact("/payload/hook.tar", "0" * 64),
    driver=Artifact("/payload/driver.tar", "2" * 64),
    node={"3.13": Artifact("/payload/node.tar", "1" * 64)},
    unit="[Service]\n",
)
STACK = StackSpec(driver=Driver(version="550.163.01", kernel_module=KernelModule.NONE))


def cpu_s() -> float:
    """Return the CPU time of this process and of its terminated children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(work: Callable[[], None]) -> tuple[float, float]:
    """Return wall and CPU time in seconds."""
    began, spent = time.monotonic(), cpu_s()
    work()
    return time.monotonic() - began, cpu_s() - spent


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="plans in a process with limits, compared with plans in this one")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    names = [f"n{number}" for number in range(args.nodes)]
    facts, stacks = parse_facts(SAMPLE.read_bytes()), dict.fromkeys(names, STACK)

    def here() -> None:
        for name in names:
            plan_node(facts, STACK, PAYLOAD, name=name)

    def within_limits() -> None:
        planner = BoundedPlanner(Declarations(stacks), PAYLOAD)
        for name in names:
            planner(name, facts, threading.Event())
        planner.worker.end()

    rounds = [(measure(here), measure(within_limits)) for _ in range(args.rounds)]
    print(f"{args.nodes} nodes, {args.rounds} rounds, median   wall ms a node   CPU ms a node")
    for index, title in enumerate(("in this process", "in a process with limits")):
        wall, cpu = (1000 * median(each[index][kind] for each in rounds) / args.nodes for kind in (0, 1))
        print(f"{title:30} {wall:17.2f} {cpu:15.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
