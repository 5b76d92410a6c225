"""One process that carries a rollout out on a fleet in memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.rollout.decision.outcome import results_of
from provision.rollout.decision.policy import Policy
from provision.rollout.model import NodeView
from tests.provision.rollout.fakes import (
    NEW,
    Clock,
    FakeCluster,
    FakeNode,
    FakeSteps,
    make_engine,
    pod,
    state,
)

if TYPE_CHECKING:
    from provision.apply.model import NodeResult
    from provision.rollout.decision.outcome import RolloutResult
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.progress import RolloutProgress


def fleet(*names: str) -> FakeCluster:
    return FakeCluster({name: FakeNode(pods=[pod(f"{name}-a"), pod(f"{name}-b")]) for name in names})


def states_of(cluster: FakeCluster) -> list[NodeState]:
    """Look at the fleet as an apply does before its rollout."""
    return [
        state(
            name,
            NodeView(name=name, record=node.record, is_cordoned=node.is_cordoned, is_ready=node.is_ready),
            origin=node.driver,
            is_disruptive=node.driver != NEW,
            is_as_declared=node.driver == NEW,
        )
        for name, node in cluster.nodes.items()
    ]


@dataclass
class Rollout:
    """One process that carries a rollout out."""

    cluster: FakeCluster
    policy: Policy = field(default_factory=Policy)
    steps: FakeSteps | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    seen: list[RolloutProgress] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def run(self) -> dict[str, NodeResult]:
        ending = self.end()
        return results_of(ending, list(self.cluster.nodes), canceled=self.cancel.is_set() and not ending.stop)

    def end(self) -> RolloutResult:
        return make_engine(
            self.cluster,
            self.steps or FakeSteps(self.cluster),
            states_of(self.cluster),
            self.policy,
            self.clock,
            observe=self.seen.append,
            cancel=self.cancel,
        ).run()


def statuses(results: dict[str, NodeResult]) -> list[str]:
    return [result.status.value for result in results.values()]
