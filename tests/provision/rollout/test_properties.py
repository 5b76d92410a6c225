"""What holds for every fleet, whatever state it is found in and in whatever order steps end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.model import Phase, Record
from tests.provision.rollout.fakes import (
    MINUTE,
    NEW,
    NOON,
    OLD,
    Clock,
    FakeCluster,
    FakeNode,
    FakeSteps,
    KilledError,
    make_engine,
    pod,
    state,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.rollout.decision.outcome import RolloutResult
    from provision.rollout.decision.snapshot import NodeState

TURNS = 5_000
TICK = timedelta(seconds=10)
STEPS = (Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME)
WAY_BACK = (Phase.ROLLBACK, Phase.VERIFY, Phase.RESUME)
BEFORE_SWAP = (Phase.CORDON, Phase.DRAIN, Phase.RELEASE)
WIDE = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def draw_node(draw: st.DrawFn, name: str, *, is_mended: bool) -> FakeNode:
    """Return a node as an earlier apply, or somebody else, may have left it."""
    phase = draw(st.sampled_from([None, None, None, *Phase]))
    remembered = None
    if phase is not None:
        is_returning = phase is Phase.ROLLBACK or (phase in (Phase.VERIFY, Phase.RESUME) and draw(st.booleans()))
        has_failed = is_returning or phase in (Phase.FAILED, Phase.RETURNED)
        remembered = Record(
            phase=phase,
            target=draw(st.sampled_from([NEW, NEW, "525.1"])),
            origin=OLD,
            began=NOON,
            since=NOON,
            failed_in=draw(st.sampled_from(STEPS)) if has_failed else None,
            reason="it broke" if has_failed else "",
            is_returning=is_returning,
        )
    is_out = remembered is not None and not remembered.phase.is_in_service
    is_back = remembered is not None and (phase is Phase.RETURNED or (remembered.is_returning and phase in STEPS))
    old = phase is None or phase in BEFORE_SWAP or is_back or draw(st.booleans())
    return FakeNode(
        record=remembered,
        is_cordoned=is_out or (not is_mended and draw(st.integers(0, 5)) == 0),
        is_ready=is_mended or draw(st.integers(0, 7)) > 0,
        pods=[
            pod(f"{name}-{index}", is_mirror_or_daemon=draw(st.integers(0, 3)) == 0)
            for index in range(draw(st.integers(0, 2)))
        ],
        driver=OLD if old else NEW,
        is_released=phase in STEPS,
        held_for=draw(st.integers(0, 2)),
        broken=None if is_mended or draw(st.integers(0, 3)) else draw(st.sampled_from(STEPS)),
        broken_back=None if is_mended or draw(st.integers(0, 3)) else draw(st.sampled_from(WAY_BACK)),
    )


@st.composite
def clusters(draw: st.DrawFn, *, is_mended: bool = False) -> FakeCluster:
    names = [f"n{number}" for number in range(1, draw(st.integers(1, 6)) + 1)]
    nodes = {name: draw_node(draw, name, is_mended=is_mended) for name in draw(st.permutations(names))}
    return FakeCluster(nodes, budget=99 if is_mended else draw(st.sampled_from([0, 1, 99])))


soaks = st.sampled_from([0 * MINUTE, 2 * MINUTE])
waves = st.lists(st.builds(WavePolicy, title=st.sampled_from(["wave"]), soak=soaks), max_size=3).map(tuple)
policies = st.builds(
    Policy,
    max_parallel=st.integers(1, 3),
    max_unavailable=st.integers(1, 4),
    soak=soaks,
    max_failures=st.sampled_from([0, 0, 1, 2]),
    waves=waves,
)


def wave_of(name: str, policy: Policy) -> int | None:
    return int(name.removeprefix("n")) % len(policy.waves) if policy.waves else None


def seen_by(cluster: FakeCluster, policy: Policy) -> list[NodeState]:
    views = cluster.observe(tuple(cluster.nodes))
    return [
        state(
            name,
            views[name],  # type: ignore[arg-type]  # no node of these has a problem
            is_disruptive=node.driver != NEW,
            is_as_declared=node.driver == NEW,
            wave=wave_of(name, policy),
        )
        for name, node in cluster.nodes.items()
    ]


@dataclass
class Watch:
    """Holds every change against what is allowed, at the moment at which it is made."""

    cluster: FakeCluster
    policy: Policy
    failed: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    turns: int = 0

    def look(self) -> None:
        self.turns += 1
        assert self.turns < TURNS, "it neither ends nor says why"

    def change(self, what: str) -> None:
        verb, name, *rest = what.split()
        if verb == "evict":
            return
        node = self.cluster.nodes[name]
        begins = verb == "write" and (node.record is None or node.record.phase.is_over)
        if begins:
            self.begin(name, node)
        before = node.record.phase if node.record else None
        if rest == ["failed"] and before in BEFORE_SWAP and not node.is_ready:
            self.lost.add(name)
        elif rest in (["failed"], ["rollback"], ["returned"]) and node.record and node.record.target == NEW:
            self.failed.add(name)

    def begin(self, name: str, node: FakeNode) -> None:
        assert len(self.failed) <= self.policy.max_failures, "nothing begins after more failures than may be"
        canary = min((self.wave(each) for each in self.cluster.nodes), default=0)
        is_alone = all(self.wave(each) == canary for each in self.cluster.nodes)
        assert is_alone or not any(self.wave(each) == canary for each in self.failed), "the canary has failed"
        flying = [one for one in self.cluster.nodes.values() if one.record and not one.record.phase.is_over]
        assert len(flying) < self.policy.max_parallel
        if not node.is_cordoned:
            others = [
                one
                for other, one in self.cluster.nodes.items()
                if other not in self.failed | self.lost and (one.is_cordoned or not one.is_ready)
            ]
            assert len(others) < self.policy.max_unavailable, "one more would be out of service"
        assert node.is_ready, name
        if node.record is None or node.record.phase is not Phase.FAILED:  # that one is out of service already
            for other in self.cluster.nodes:
                assert self.wave(other) >= self.wave(name) or self.is_over(other), f"{name} is before its turn"

    def wave(self, name: str) -> int:
        return wave_of(name, self.policy) or 0

    def is_over(self, name: str) -> bool:
        node = self.cluster.nodes[name]
        is_there = node.driver == NEW and (node.record is None or node.record.phase is Phase.DONE)
        return is_there or name in self.failed | self.lost


def roll_out(cluster: FakeCluster, policy: Policy) -> tuple[RolloutResult, Watch]:
    watch = Watch(cluster, policy)
    cluster.effect, cluster.on_observe = watch.change, watch.look
    before = seen_by(cluster, policy)
    engine = make_engine(cluster, FakeSteps(cluster, watch.change), before, policy, Clock(step=TICK))
    return engine.run(), watch


def unfinished(nodes: Iterable[NodeState]) -> list[str]:
    return [node.name for node in nodes if node.is_in_flight or node.wants_to_begin]


@pytest.mark.slow
@WIDE
@given(clusters(), policies)
def test_limits_hold_and_every_node_comes_to_an_end_or_has_a_reason(cluster: FakeCluster, policy: Policy) -> None:
    ending, watch = roll_out(cluster, policy)
    assert not any(node.is_in_flight for node in ending.nodes), "nothing is left half-done"
    for name in unfinished(ending.nodes):
        assert ending.waiting.get(name)
        assert ending.stop
    for name, node in cluster.nodes.items():
        remembered = node.record
        if remembered is not None and remembered.phase is Phase.DONE and name in ending.moved:
            assert (node.driver, node.is_released) == (NEW, False)
        if remembered is not None and remembered.phase is Phase.RETURNED and name in ending.moved:
            assert (node.driver, node.is_released) == (OLD, False)
        if remembered is not None and remembered.phase.is_in_service and name in ending.moved:
            assert node.is_cordoned is remembered.was_cordoned
        if name in watch.failed | watch.lost:
            assert remembered is not None
            assert remembered.reason
            assert node.is_cordoned or remembered.phase is Phase.RETURNED
    assert not any("daemon" in name for name in cluster.evicted)


@pytest.mark.slow
@WIDE
@given(clusters(is_mended=True), policies)
def test_a_healthy_fleet_always_gets_there(cluster: FakeCluster, policy: Policy) -> None:
    out = sum(node.is_cordoned for node in cluster.nodes.values())
    policy = replace(policy, max_unavailable=max(policy.max_unavailable, out + 1))
    bring_back(cluster, policy)
    ending, _ = roll_out(cluster, policy)
    assert ending.stop == ""
    assert {node.driver for node in cluster.nodes.values()} == {NEW}
    assert not any(node.is_cordoned for node in cluster.nodes.values())


def bring_back(cluster: FakeCluster, policy: Policy) -> None:
    """Let nodes that were left on their way back return: whoever applies is told of these failures first."""
    if any(node.record and node.record.is_returning for node in cluster.nodes.values()):
        roll_out(cluster, policy)


@pytest.mark.slow
@WIDE
@given(clusters(is_mended=True), policies, st.lists(st.integers(0, 30), max_size=4))
def test_kills_do_not_change_where_it_ends(cluster: FakeCluster, policy: Policy, kills: list[int]) -> None:
    out = sum(node.is_cordoned for node in cluster.nodes.values())
    policy = replace(policy, max_unavailable=max(policy.max_unavailable, out + 1))
    for kill in kills:
        left = iter(range(kill + 1))

        def die(what: str, left: Iterable[int] = left) -> None:
            if next(iter(left), None) is None:
                raise KilledError(what)

        cluster.effect, cluster.on_observe = die, lambda: None
        engine = make_engine(cluster, FakeSteps(cluster, die), seen_by(cluster, policy), policy, Clock(step=TICK))
        try:
            engine.run()
        except KilledError:
            continue
    bring_back(cluster, policy)
    ending, _ = roll_out(cluster, policy)
    assert ending.stop == ""
    assert {node.driver for node in cluster.nodes.values()} == {NEW}
    assert not any(node.is_cordoned or node.is_released for node in cluster.nodes.values())
