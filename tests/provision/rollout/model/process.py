"""One process that rolls out on the simulated fleet, turn by turn, and may be killed at any effect."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from provision.rollout.cluster import NodeProblem
from provision.rollout.decision.policy import strictest
from provision.rollout.decision.prepare import in_their_places
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.decision.together import with_domains
from provision.rollout.engine import Adapters, Engine
from provision.rollout.errors import HeldError, UnreachableError
from provision.simulate.cluster import SimulatedCluster, SimulatedLease
from provision.simulate.executor import VirtualExecutor
from tests.provision.rollout.model.invariants import Invariants, hold, is_unfinished

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.rollout.model import Origin, Phase
    from provision.rollout.standing import Standing
    from provision.simulate.world import World
    from provision.spec.model import Rollout

POLL_S = 20.0


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class Declared:
    """What the declaration says at some moment."""

    target: str
    rollout: Rollout


class CheckedExecutor(VirtualExecutor):
    """Shows every step to the invariants before it begins."""

    invariants: Invariants

    def start(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        self.invariants.step(node, phase, back)
        super().start(node, phase, back)


@dataclass
class Process:
    """An apply that has the lease, after its plan was confirmed."""

    world: World
    cluster: SimulatedCluster
    engine: Engine
    executor: CheckedExecutor
    invariants: Invariants
    turns: int = 0
    countdown: int | None = None
    at_zero: Callable[[], None] = field(default=lambda: None)

    def count(self) -> None:
        """Count an effect that is about to happen."""
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                self.countdown = None
                self.at_zero()

    def turn(self) -> bool:
        """Return whether it is over."""
        self.turns += 1
        self.cluster.renew()
        if not self.engine._turn():
            return False
        self.end()
        return True

    def end(self) -> None:
        engine = self.engine
        stop = engine._stop or engine._decision.stop
        for node in engine._nodes.values():
            if is_unfinished(node):
                reason = stop or engine._decision.waiting.get(node.name)
                hold(reason, f"{node.name} is left without a reason")
        self.cluster.give_back()
        self.leave()

    def leave(self) -> None:
        """Let go of everything, as the kernel does for a process that is gone."""
        self.world.abandon(self.executor)
        self.cluster.close()


def begin(world: World, tenancy: SimulatedLease, holder: str, declared: Declared) -> Process | None:
    """Return a process that has planned and holds the lease, None where it could not."""
    cluster = SimulatedCluster(world, tenancy)
    try:
        cluster.take(holder)
        states = states_of(world, cluster, declared)
    except (HeldError, UnreachableError):
        cluster.close()
        return None
    policy = strictest([declared.rollout], len(states))
    cancel = threading.Event()
    executor = CheckedExecutor(world, cancel, alive=cluster.renew)
    cluster.on_change = executor.wake
    invariants = Invariants(world, cluster, declared.target, policy)
    executor.invariants = invariants
    adapters = Adapters(
        cluster=cluster,
        steps=None,  # type: ignore[arg-type]  # the executor has steps of its own
        clock=world.time,
        poll_s=POLL_S,
        executor=lambda _steps, _cancel, _workers: executor,
    )
    engine = Engine(adapters, states, policy, observe=lambda _progress: None, cancel=cancel)
    process = Process(world, cluster, engine, executor, invariants)
    invariants.engine, invariants.before = engine, process.count
    cluster.hooks.write, cluster.hooks.evict = invariants.write, invariants.evict

    def published(_standing: Standing) -> None:
        decision = engine._decision
        invariants.waits(dict(decision.waiting), {action.node for action in decision.actions})

    cluster.hooks.published = published
    return process


def states_of(world: World, cluster: SimulatedCluster, declared: Declared) -> list[NodeState]:
    """Look at the fleet as an apply does before its rollout."""
    states = []
    for name, view in cluster.observe(tuple(world.machines)).items():
        if isinstance(view, NodeProblem):
            continue
        machine = world.machines[name]
        states.append(
            NodeState(
                view=view,
                target=declared.target,
                origin=machine.driver,
                drain_timeout=timedelta(minutes=declared.rollout.drain_timeout_minutes),
                is_disruptive=machine.driver != declared.target,
                is_as_declared=machine.driver == declared.target,
                obstacle="" if machine.is_up else f"{name} cannot be reached",
            )
        )
    return in_their_places(with_domains(states, declared.rollout.domains, {}), declared.rollout, {})
