"""A simulated fleet to which happens what people have met elsewhere, under the real engine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from provision.declaration.spec.model import Rollout
from provision.rollout.adapters import Adapters
from provision.rollout.decision.outcome import results_of
from provision.rollout.engine import Engine
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.simulate.chance import Chance
from provision.rollout.simulate.cluster import SimulatedCluster, SimulatedLease
from provision.rollout.simulate.executor import VirtualExecutor
from provision.rollout.simulate.play import build, prepare
from provision.rollout.simulate.scenario import NodeModel, PodModel, Scenario
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.model import Seen, Tenant
from tests.provision.rollout.model.process import KilledError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.rollout.interface.progress import RolloutProgress
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Phase
    from provision.rollout.simulate.machine import Machine
    from provision.rollout.simulate.world import World
    from provision.rollout.status.model import FleetStatus

OLD, NEW = "535.261.03", "550.163.01"
START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)  # a Monday
POLL_S = 60.0


class _NoSteps:
    """The executor has its own."""

    def run(self, *_: object) -> None:
        raise AssertionError


@dataclass
class Fleet:
    """Nodes that all have to be upgraded, and what was said and done about them.

    ``on_phase`` is called when a node has entered a phase, with its machine as it is then. ``looks`` are what
    `grapnel status` would have said after each turn of the engine.
    """

    scenario: Scenario
    world: World
    way: list[tuple[str, Phase]] = field(default_factory=list)
    looks: list[FleetStatus] = field(default_factory=list)
    on_phase: Callable[[Machine, Phase], None] = lambda _machine, _phase: None
    lease: SimulatedLease = field(default_factory=SimulatedLease)
    stop: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def machines(self) -> dict[str, Machine]:
        return self.world.machines

    def apply(self, holder: str = "ada", **rollout: object) -> Mapping[str, str]:
        """Apply as somebody does; return what became of each node that had to be upgraded, in a word."""
        declared = replace(self.scenario, nodes=self._nodes(), rollout=Rollout(**rollout))  # type: ignore[arg-type]  # keys by name
        cluster = SimulatedCluster(self.world, self.lease)
        states, policy = prepare(declared, cluster)
        cancel = threading.Event()
        executor = VirtualExecutor(self.world, cancel, alive=cluster.renew)
        cluster.hooks.published = lambda standing: self._look(standing, holder)
        adapters = Adapters(
            cluster=cluster,
            steps=_NoSteps(),  # type: ignore[arg-type]  # nobody runs them
            clock=self.world.time,
            poll_s=POLL_S,
            executor=lambda _steps, _cancel, _workers: executor,
        )
        todo = [state.name for state in states if state.wants_to_begin or state.is_in_flight or state.has_failed_before]
        try:
            with cluster.lease(holder):
                result = Engine(adapters, states, policy, observe=self._observe, cancel=cancel).run()
        except KilledError:
            self.world.abandon(executor)
            raise
        finally:
            cluster.close()
        results = results_of(result, todo, canceled=False)
        self.stop = result.stop
        said = {name: each.note if each.failure is None else each.failure.message for name, each in results.items()}
        self.reasons = {name: words for name, words in said.items() if words}
        return {name: each.status.value for name, each in results.items()}

    def at(self, seconds: float, happening: Callable[[], None]) -> None:
        """Have something happen so long after now."""
        self.world.time.after(seconds, happening)

    def _nodes(self) -> tuple[NodeModel, ...]:
        return tuple(replace(node, driver=self.machines[node.name].driver) for node in self.scenario.nodes)

    def _observe(self, progress: RolloutProgress) -> None:
        if isinstance(progress, PhaseEntered):
            self.way.append((progress.node, progress.phase))
            self.on_phase(self.machines[progress.node], progress.phase)

    def _look(self, standing: Standing, holder: str) -> None:
        seen = Seen(
            place="the simulated cluster",
            time=self.world.time(),
            nodes={name: machine.seen() for name, machine in self.machines.items()},
            tenant=Tenant(holder=holder, is_at_work=True),
            standing=standing,
            pause=self.world.pause,
        )
        self.looks.append(fleet_status(seen))


def fleet(count: int = 4, *, target: str = NEW, pods: int = 1) -> Fleet:
    """Return nodes ``n1`` to ``n…`` on which pods have GPUs."""
    on_each = tuple(PodModel(name=f"shop/web-{number}") for number in range(pods))
    nodes = tuple(NodeModel(name=f"n{number}", driver=OLD, pods=on_each) for number in range(1, count + 1))
    scenario = Scenario(nodes=nodes, target=target, start=START)
    return Fleet(scenario, build(scenario, Chance(scenario, 1)))
