"""The controller's process: the real controller, with machines in memory or, with `--jobs`, Jobs for agents outside.

What is asked of the API server is counted. A line on standard input is answered with the counts; its end ends all.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.fleets.machines import Machines
from provision.cluster.connect import open_api
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from provision.controller.jobs.manifest import JobKind
from provision.controller.jobs.runner import JobRunner
from provision.controller.loop import Controller
from provision.controller.rounds.apply import Dependencies, usual_adapters
from provision.planning.node_plan import Action, Disruption, Item, NodePlan, Role
from provision.planning.supply.payload.model import Artifact, Payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.context import Planner
    from provision.apply.declarations import Declarations
    from provision.apply.model import PlaybookRunner
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request, Stream
    from provision.cluster.kubernetes.cluster import Held
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.adapters import Adapters
    from provision.rollout.gates import GateKeeper
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.step import Steps

POLL_S: Final = 0.05  # machines in memory take no time: it is looked at once more soon
PARALLEL: Final = 20  # as many as `grapnel controller` looks at at once


@contextmanager
def planner(declarations: Declarations, _payload: Payload) -> Iterator[Planner]:
    """Plan the declared driver, for which a node has to be taken out of service."""

    def plan(node: str, facts: NodeFacts, _cancel: threading.Event) -> NodePlan:
        wanted = declarations.stacks[node].driver.version or ""
        if facts.packages["driver"].version == wanted:
            return NodePlan(node=node)
        swap = Item(
            role=Role.DRIVER,
            action=Action.INSTALL,
            target=wanted,
            to=wanted,
            reason="declared",
            disruption=Disruption.DRAIN,
        )
        return NodePlan(node=node, items=(swap,))

    yield plan


class Counting:
    """Counts what a controller asks of its API server, and the bytes that it is sent."""

    def __init__(self, api: Api) -> None:
        self._sender = api._sender
        self.name = api.name
        self.requests = self.size = 0

    def send(self, request: Request) -> ApiResponse:
        """Send a request."""
        self.requests += 1
        answer = self._sender.send(request)
        self.size += len(answer.body)
        return answer

    def stream(self, request: Request) -> Stream:
        """Begin a watch, or read a log."""
        self.requests += 1
        stream = self._sender.stream(request)
        return replace(stream, lines=self._counted(stream.lines))

    def _counted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            self.size += len(line)
            yield line


def accelerated(cluster: Cluster, steps: Steps, gates: GateKeeper) -> Adapters:
    """Look again at once: steps of machines in memory take no time."""
    return replace(usual_adapters(cluster, steps, gates), poll_s=POLL_S)


def tell(*words: object) -> None:
    """Write a line to the measuring process, with the time."""
    sys.stdout.write(f"{time.time():.4f} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


def make(api: Api, make_runner: Callable[[Held], PlaybookRunner]) -> Controller:
    """Put a controller together."""
    archive = Artifact("/archive", "0" * 64)
    payload = Payload(hook=archive, driver=archive, node=archive, unit="[Unit]")
    rules = PodRules(resources=frozenset({"nvidia.com/gpu"}))

    def dependencies(held: Held) -> Dependencies:
        return Dependencies(
            runner=make_runner(held),
            collection=Path("/collection"),
            payload=payload,
            open_cluster=lambda _stacks: KubernetesCluster(api, rules=rules, machines={}, tenure=held),
            holder="bench",
            parallel=PARALLEL,
            planner=planner,
            adapt=accelerated,
        )

    return Controller(api, dependencies, "bench", say=lambda text: tell("said", text))


def main() -> int:
    """Be the controller until standard input ends."""
    parser = argparse.ArgumentParser(description="the controller's process of bench/scale.py")
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--jobs", metavar="NAMESPACE", help="run playbooks as Jobs there")
    args = parser.parse_args()
    found = open_api(args.kubeconfig, None, {})
    assert found is not None
    counting = Counting(found)
    api = Api(counting)
    machines = Machines(looked=lambda node: tell("looked", node))

    def make_runner(held: Held) -> PlaybookRunner:
        if not args.jobs:
            return machines
        return JobRunner(api.guarded(held.check), JobKind(image="example.com/grapnel:1", namespace=args.jobs), PARALLEL)

    controller = make(api, make_runner)

    def answer() -> None:
        for _line in sys.stdin:
            tell("counted", counting.requests, counting.size)
        controller.stop()

    threading.Thread(target=answer, daemon=True).start()
    controller.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
