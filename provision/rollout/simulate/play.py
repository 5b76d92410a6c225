"""Plays a whole roll-out in virtual time with the real engine: the same scenario and seed give the same playback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import GpuInterface
from provision.rollout.adapters import Adapters
from provision.rollout.decision.order.together import with_domains
from provision.rollout.decision.policy import DrainPolicy, strictest
from provision.rollout.decision.prepare import in_their_places
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.engine import Engine
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import ChangeKind, Phase
from provision.rollout.simulate.chance import Chance
from provision.rollout.simulate.cluster import SimulatedCluster
from provision.rollout.simulate.executor import VirtualExecutor
from provision.rollout.simulate.machine import Machine, Pod
from provision.rollout.simulate.playback import Playback, Recorder, plays_of
from provision.rollout.simulate.world import Budget, VirtualTime, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.rollout.decision.policy import Policy
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Origin
    from provision.rollout.simulate.scenario import NodeModel, Scenario
    from provision.rollout.step import StepOutcome

POLL_S: Final = 60.0  # what changes wakes the engine; limits of time are noticed this much later at most
BATCHED: Final = 300  # nodes for each second that is waited for more to happen before the next decision
STILL_S: Final = 31 * 86400.0  # without anything happening, after which it is said not to end
ILL: Final = "its hardware has failed"


Told = Callable[[int, float], None]  # how many nodes have come to an end, and after how many virtual seconds


def play(scenario: Scenario, seed: int, told: Told = lambda _over, _at_s: None) -> Playback:
    """Roll out in virtual time until it is over. No wave is held: its gate is passed when it is healthy."""
    chance = Chance(scenario, seed)
    world = build(scenario, chance)
    cluster = SimulatedCluster(world)
    states, policy = prepare(scenario, cluster)
    return roll_out(chance, cluster, states, policy, batch_s=resolution_s(scenario), told=told)


def roll_out(
    chance: Chance,
    cluster: SimulatedCluster,
    states: Sequence[NodeState],
    policy: Policy,
    *,
    batch_s: float = 0.0,
    is_enough: Callable[[], bool] = lambda: False,
    told: Told = lambda _over, _at_s: None,
) -> Playback:
    """Do the same with these nodes and this policy; when it ``is_enough`` it ends as it stands then.

    So it does where nothing happens any more, which is no roll-out that ends.
    """
    world, cancel = cluster.world, threading.Event()
    executor = _LosingExecutor(world, cancel, chance, batch_s)
    recorder = Recorder(world.time, world.machines)

    def published(standing: Standing) -> None:
        recorder.published(standing)
        told(recorder.over, world.time.now_s)
        if is_enough() or recorder.still_s > STILL_S:
            cancel.set()

    cluster.hooks.published = published
    adapters = Adapters(
        cluster=cluster,
        steps=_NoSteps(),
        clock=world.time,
        poll_s=POLL_S,
        executor=lambda _steps, _cancel, _workers: executor,
    )
    result = Engine(adapters, states, policy, observe=recorder.observe, cancel=cancel).run()
    return Playback(
        seed=chance.seed,
        took_s=max([entry.at_s for entry in recorder.entries], default=0.0),
        nodes=plays_of(recorder.entries, {state.name: state.wave for state in states}, result.waiting),
        entries=tuple(recorder.entries),
        waves=tuple(wave.title for wave in policy.waves),
        waits=recorder.waits(),
        stop="" if _is_about_skipped(result.nodes) else _why_still(recorder) or result.stop,
        most_out=recorder.most_out,
        turns=recorder.turns,
    )


def _why_still(recorder: Recorder) -> str:
    """Return that nothing happens any more, and what is waited for; empty while something does."""
    if recorder.still_s <= STILL_S:
        return ""
    return f"nothing has happened for {STILL_S / 86400:g} days: {recorder.most_waited() or 'no node waits'}"


def _is_about_skipped(nodes: Sequence[NodeState]) -> bool:
    """Tell whether nothing is left undone but what is skipped: that is no roll-out that stopped."""
    left = [node for node in nodes if node.wants_to_begin or node.is_in_flight or node.has_failed]
    return bool(left) and all(node.view.is_skipped and node.wants_to_begin for node in left)


def resolution_s(scenario: Scenario) -> float:
    """Return within how many seconds things count as one moment: each decision about a large fleet takes its time."""
    return len(scenario.nodes) / BATCHED


class _NoSteps:
    """Steps are the executor's own."""

    def run(self, *_: object) -> StepOutcome:
        raise AssertionError("the executor has its own steps")


class _LosingExecutor(VirtualExecutor):
    """Takes nodes down in their swap whose fortune that is."""

    def __init__(self, world: World, cancel: threading.Event, chance: Chance, batch_s: float) -> None:
        super().__init__(world, cancel, batch_s=batch_s)
        self._chance = chance

    def start(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        """Begin the step of a phase."""
        super().start(node, phase, back)
        if phase is Phase.SWAP and self._chance.is_lost(node):
            self._world.take_down(node)


def build(scenario: Scenario, chance: Chance) -> World:
    """Return the fleet as it is before, with what will happen to it whatever anybody does."""
    machines = {node.name: _machine(node, chance) for node in scenario.nodes}
    budgets = {one.name: Budget(one.name, one.allowed, one.restart_s) for one in scenario.budgets}
    world = World(VirtualTime(scenario.start), machines, chance, budgets)
    for name in machines:
        after_s = chance.ill_after_s(name)
        if after_s is not None:
            world.time.after(after_s, lambda name=name: world.fall_ill(name, ILL))  # type: ignore[misc]  # a default of a lambda
    faults = scenario.faults
    if faults.away_every_s and faults.away_for_s:
        _plan_outage(world, faults.away_every_s, faults.away_for_s)
    return world


def _plan_outage(world: World, every_s: float, for_s: float) -> None:
    def go_away() -> None:
        world.away_until_s = world.time.now_s + for_s
        world.time.after(every_s, go_away)

    world.time.after(every_s, go_away)


def _machine(node: NodeModel, chance: Chance) -> Machine:
    pods = {}
    for model in node.pods:
        uid = f"{node.name}/{model.name}"
        grace_s = chance.grace_s(uid) if model.grace_s is None else model.grace_s
        namespace, _, name = model.name.rpartition("/")
        pods[uid] = Pod(
            namespace=namespace or "default",
            name=name,
            uid=uid,
            grace_s=grace_s,
            budget=model.budget,
            controller=model.controller,
            is_daemon=model.is_daemon,
            is_stuck=chance.is_stuck(uid),
        )
    return Machine(
        name=node.name,
        driver=node.driver,
        pods=pods,
        labels=node.labels,
        is_cordoned=node.is_cordoned,
        cordoned_by="somebody" if node.is_cordoned else "",
        is_up=node.is_ready,
        is_skipped=node.is_skipped,
    )


def _interface_of(node: NodeModel, target: GpuInterface) -> GpuInterface:
    """Return the interface that a node had, which stands in the place of its driver."""
    return target.other if node.driver == target.value else GpuInterface(node.driver)


def prepare(scenario: Scenario, cluster: SimulatedCluster) -> tuple[list[NodeState], Policy]:
    """Return the nodes and the policy as an apply of the declaration has them."""
    views = cluster.observe([node.name for node in scenario.nodes])
    rollout = scenario.rollout
    states = [
        NodeState(
            view=view,
            target=scenario.target,
            origin=node.driver,
            drain=DrainPolicy(limit=timedelta(minutes=rollout.drain_timeout_minutes)),
            is_disruptive=node.driver != scenario.target,
            is_as_declared=node.driver == scenario.target,
            kind=ChangeKind.DRIVER if scenario.interface is None else ChangeKind.INTERFACE,
            interface=scenario.interface,
            former_interface=None if scenario.interface is None else _interface_of(node, scenario.interface),
        )
        for node in scenario.nodes
        if not isinstance(view := views[node.name], NodeProblem)
    ]
    groups = {node.name: node.groups for node in scenario.nodes}
    policy = scenario.policy or strictest([rollout], len(states))
    waves = tuple(replace(wave, is_held=False) for wave in policy.waves)
    grouped = with_domains(states, rollout.domains, groups)
    return in_their_places(grouped, rollout, groups), replace(policy, waves=waves)
