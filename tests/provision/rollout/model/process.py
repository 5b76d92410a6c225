"""One process that rolls out on the simulated fleet, turn by turn, and may be killed at any effect."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from provision.apply.model import Failure, Status
from provision.declaration.fleet.facts.driver import DriverRun, DriverState
from provision.declaration.fleet.facts.node import FileState, NodeFacts
from provision.declaration.spec.model import Scheduler
from provision.rollout.adapters import Adapters
from provision.rollout.changes.plan import DriverVerb, Extent, plan_verb
from provision.rollout.decision.order.together import with_domains
from provision.rollout.decision.policy import drain_policy, strictest
from provision.rollout.decision.prepare import in_their_places
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.engine import Engine
from provision.rollout.errors import HeldError, UnreachableError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.gates import GateState
from provision.rollout.interface.instructions import Instructions
from provision.rollout.model import Phase
from provision.rollout.simulate.executor import VirtualExecutor
from tests.provision.rollout.model.invariants import Invariants, hold, is_unfinished
from tests.provision.rollout.model.policies import POLICIES
from tests.provision.samples import make_facts, make_module, make_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from provision.declaration.spec.model import Rollout, StackSpec
    from provision.rollout.decision.policy import Policy
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Origin
    from provision.rollout.simulate.cluster import SimulatedCluster
    from provision.rollout.simulate.machine import Machine
    from provision.rollout.simulate.world import World
    from provision.rollout.step import StepOutcome
    from tests.provision.rollout.model.fleet import Fleet
    from tests.provision.rollout.model.policies import Declared

POLL_S = 60.0  # what changes wakes the engine


class KilledError(BaseException):
    """The process ends here."""


class CheckedExecutor(VirtualExecutor):
    """Shows every step to the invariants before it begins."""

    invariants: Invariants
    cancel: threading.Event

    def start(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        self.invariants.step(node, phase, back)
        super().start(node, phase, back)

    def ended(self, node: str, phase: Phase, outcome: StepOutcome) -> None:
        self.invariants.ended(node, outcome, is_asked=self.cancel.is_set())
        super().ended(node, phase, outcome)


@dataclass
class Alerts:
    """A gate that an alert closes; ``told`` is what the engine was told last."""

    fleet: Fleet
    told: str = ""

    def states(self) -> tuple[GateState, ...]:
        self.told = "an alert fires" if self.fleet.has_alert else ""
        return (GateState(name="alerts", is_open=not self.told, reason=self.told),)


@dataclass
class Process:
    """An apply, or a rollback, that has the lease, after its plan was confirmed."""

    world: World
    cluster: SimulatedCluster
    engine: Engine
    executor: CheckedExecutor
    invariants: Invariants
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
        self.cluster.renew()
        if not self.engine._turn():
            return False
        self.end()
        return True

    def end(self) -> None:
        engine = self.engine
        stop = engine._stop or engine._decision.stop
        for node in engine._nodes.values():
            if is_unfinished(node) and not engine._has_to_end:
                reason = stop or engine._decision.waiting.get(node.name)
                hold(reason, f"{node.name} is left without a reason")
        self.cluster.give_back()
        self.leave()

    def leave(self) -> None:
        """Let go of everything, as the kernel does for a process that is gone."""
        self.world.abandon(self.executor)
        self.cluster.close()


def begin(fleet: Fleet, holder: str, *, undoes: bool) -> Process | None:
    """Return a process that has planned and holds the lease, None where it could not, or has nothing to do."""
    world = fleet.world
    cluster = fleet.open_cluster()
    try:
        cluster.take(holder)
        states, policy = (plan_back if undoes else plan_forward)(world, cluster, fleet.declared)
    except (HeldError, UnreachableError):
        cluster.close()
        return None
    if undoes and not any(state.is_in_flight or state.wants_to_begin for state in states):
        cluster.give_back()
        cluster.close()
        return None
    return started(fleet, cluster, states, policy, undoes=undoes)


def started(
    fleet: Fleet,
    cluster: SimulatedCluster,
    states: Sequence[NodeState],
    policy: Policy,
    *,
    undoes: bool = False,
    observe: RolloutObserver = lambda _progress: None,
    cancel: threading.Event | None = None,
    make: Callable[..., Invariants] = Invariants,
    instructions: Instructions | None = None,
) -> Process:
    """Return a process whose engine is about to begin, with the invariants of a kind."""
    cancel, world = cancel or threading.Event(), fleet.world
    executor = CheckedExecutor(world, cancel, alive=lambda: fleet.lives(cluster), undoes=undoes)
    cluster.on_change = executor.wake
    alerts = Alerts(fleet)
    adapters = Adapters(
        cluster=cluster,
        steps=None,  # type: ignore[arg-type]  # the executor has steps of its own
        clock=world.time,
        poll_s=POLL_S,
        executor=lambda _steps, _cancel, _workers: executor,
        gates=alerts,
        instructions=instructions or Instructions(),
    )
    engine = Engine(adapters, states, policy, observe=observe, cancel=cancel)
    invariants = make(world, cluster, engine, policy, fleet.history, undoes, lambda: alerts.told, fleet.abandoned)
    executor.invariants, executor.cancel = invariants, cancel
    process = Process(world, cluster, engine, executor, invariants)
    invariants.before = process.count
    cluster.hooks.write, cluster.hooks.evict = invariants.write, invariants.evict

    def published(_standing: Standing) -> None:
        decision = engine._decision
        if engine._has_to_end:  # nothing is decided any more
            return
        invariants.waits(decision.waiting, {action.node for action in decision.actions})

    cluster.hooks.published = published
    return process


def plan_forward(world: World, cluster: SimulatedCluster, declared: Declared) -> tuple[list[NodeState], Policy]:
    """Look at the fleet as an apply does before its rollout."""
    states, rollout = [], declared.rollout
    drain = drain_policy(rollout, Scheduler())
    for name, view in cluster.observe(tuple(world.machines)).items():
        if isinstance(view, NodeProblem):
            continue
        machine = world.machines[name]
        record = view.record
        if not machine.is_up and record is not None and not record.phase.is_over:  # all that is known is its record
            known = NodeState(view=view, target=declared.target, drain=drain)
            origin, change = record.origin, record.origin_change
            is_changed = record.phase in {Phase.VERIFY, Phase.RESUME}
            states.append(replace(known, origin=origin, origin_change=change, is_disruptive=not is_changed))
            continue
        is_elsewhere = machine.change is not None and machine.change.target != declared.target
        is_there = machine.driver == declared.target and not is_elsewhere
        states.append(
            NodeState(
                view=view,
                target=declared.target,
                origin=machine.driver,
                drain=drain,
                is_disruptive=not is_there,
                is_as_declared=is_there,
                obstacle="" if machine.is_up else f"{name} cannot be reached",
                origin_change=machine.driver,
                is_released=machine.is_released,
                is_half_done=machine.change is not None,
            )
        )
    return in_their_places(with_domains(states, rollout.domains, {}), rollout, {}), strictest([rollout], len(states))


def plan_back(world: World, cluster: SimulatedCluster, declared: Declared) -> tuple[list[NodeState], Policy]:
    """Look at the fleet as a rollback of all of it does."""
    views = cluster.observe(tuple(world.machines))
    answers = {name: facts_of(machine) for name, machine in world.machines.items()}
    plan = plan_verb(
        DriverVerb.BACK,
        answers,
        dict.fromkeys(answers, declared_stack(declared)),
        views,
        Extent(undoes_upgrade=True, in_waves=True, groups=dict.fromkeys(answers, ())),
    )
    return list(plan.prepared.states), plan.prepared.policy


def declared_stack(declared: Declared) -> StackSpec:
    """Return what is declared at some moment, as far as it is about a driver."""
    index = index_or_none(declared.rollout)
    stack = stack_of(declared.target, index)
    return stack if index is not None else msgspec.structs.replace(stack, rollout=declared.rollout)


def index_or_none(rollout: Rollout) -> int | None:
    return next((index for index, policy in enumerate(POLICIES) if policy is rollout), None)


@lru_cache
def stack_of(target: str, policy: int | None) -> StackSpec:
    """Return what is declared, as far as it is about a driver."""
    stack = make_stack(driver={"version": target})
    return stack if policy is None else msgspec.structs.replace(stack, rollout=POLICIES[policy])


def facts_of(machine: Machine) -> NodeFacts | Failure:
    """Return what a machine says of its driver."""
    if not machine.is_up:
        return Failure(Status.UNREACHABLE, f"{machine.name} cannot be reached")
    last, change = machine.last, machine.change
    run = None
    if change is not None:
        run = DriverRun(state="running", verb="back" if change.is_back else "swap", change=change.target)
    elif last is not None:
        run = DriverRun(
            state="failed" if last.failure else "done", verb="back" if last.is_back else "swap", change=last.target
        )
    return _facts(machine.driver, machine.former[-1] if machine.former else None, run, machine.is_released)


@lru_cache(maxsize=512)
def _facts(driver: str, back: str | None, run: DriverRun | None, is_released: bool) -> NodeFacts:  # noqa: FBT001 - cached
    state = DriverState(current=driver, back=back, run=run, managed=True)
    files = (
        {"/var/lib/grapnel/node/released.json": FileState(mode="0600", uid=0, gid=0, sha256="0" * 64)}
        if is_released
        else {}
    )
    return make_facts(module=make_module(driver, driver), driver=state, files=files)
