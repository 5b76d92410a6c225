"""How often the engine looks, however much happens."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from provision.cluster.errors import ForbiddenError
from provision.rollout.adapters import Adapters
from provision.rollout.decision.policy import DrainPolicy, Policy
from provision.rollout.engine import Engine
from provision.rollout.errors import ConflictError
from provision.rollout.evictions import ASK_AGAIN, ASKED_AT_ONCE
from provision.rollout.interface.cluster import Eviction, EvictionOutcome
from provision.rollout.interface.progress import NodeWaits, RolloutProgress
from provision.rollout.model import Phase
from provision.rollout.steps.executor import BURST, SOON_S, Pace
from tests.provision.rollout.fakes import NOON, Clock, FakeCluster, FakeSteps, make_engine, pod, record, state, view
from tests.provision.rollout.process import fleet, states_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from provision.rollout.model import GpuPod, NodeView
    from provision.rollout.step import Steps
    from provision.rollout.steps.executor import Event


def turns(pace: Pace, now: datetime, seconds: float, *, each_s: float = 0.0) -> int:
    """Return how many turns there are in so many seconds, when something happens all the time."""
    count, end = 0, now + timedelta(seconds=seconds)
    while now < end:
        count += 1
        now += timedelta(seconds=each_s + pace.rest_s(now))
    return count


def test_a_burst_is_allowed_and_then_one_turn_after_the_other() -> None:
    pace = Pace(NOON)
    assert [pace.rest_s(NOON) for _ in range(BURST)] == [0.0] * BURST
    assert pace.rest_s(NOON) == SOON_S


@pytest.mark.parametrize("each_s", [0.001, 0.1, 0.24])
def test_however_much_happens_there_are_four_turns_a_second(each_s: float) -> None:
    found = turns(Pace(NOON), NOON, 100, each_s=each_s)
    assert 100 / SOON_S <= found <= 100 / SOON_S + BURST + 1


def test_a_clock_that_jumps_neither_stops_it_nor_lets_it_race() -> None:
    pace = Pace(NOON)
    turns(pace, NOON, 10, each_s=0.001)
    rests = [pace.rest_s(NOON - timedelta(hours=hours)) for hours in range(5)]
    assert all(0 < rest_s <= SOON_S for rest_s in rests)
    ahead = NOON + timedelta(days=1)
    assert turns(pace, ahead, 1, each_s=0.001) <= BURST + 1 / SOON_S + 1


@dataclass
class Stormy:
    """An executor on which something happens all the time; it counts how long the engine is held back."""

    waits: list[tuple[float, float]] = field(default_factory=list)
    ended: list[Event] = field(default_factory=list)

    def start(self, node: str, phase: Phase, back: object = None) -> None:
        raise AssertionError((node, phase, back))

    def wait(self, timeout_s: float, least_s: float = 0.0) -> list[Event]:
        self.waits.append((timeout_s, least_s))
        return []

    def wake(self) -> None:
        raise AssertionError

    def close(self) -> None:
        """Nothing runs."""


@dataclass
class Refusing(FakeCluster):
    """A cluster whose pods may not be evicted, and that remembers when each was asked."""

    asked: list[list[str]] = field(default_factory=list)

    def evict_all(self, pods: Sequence[GpuPod]) -> dict[str, Eviction]:
        self.asked.append([each.uid for each in pods])
        return {each.uid: Eviction(outcome=EvictionOutcome.BLOCKED, reason="budget") for each in pods}


def draining(count: int) -> FakeCluster:
    cluster = Refusing({f"n{number}": fleet("n").nodes["n"] for number in range(count)})
    for name, node in cluster.nodes.items():
        node.record, node.is_cordoned = record(Phase.DRAIN), True
        node.pods = [pod(f"{name}-{number}") for number in range(8)]
    return cluster


def test_a_pod_that_is_refused_is_asked_again_after_a_while_and_many_in_turn() -> None:
    cluster = draining(100)
    assert isinstance(cluster, Refusing)
    clock, executor = Clock(step=timedelta(milliseconds=100)), Stormy()

    def no_steps(_steps: Steps, _cancel: threading.Event, _workers: int) -> Stormy:
        return executor

    states = [
        state(name, view(name, node.record, gpu_pods=tuple(node.pods)), drain=DrainPolicy(limit=timedelta(seconds=60)))
        for name, node in cluster.nodes.items()
    ]
    adapters = Adapters(cluster=cluster, steps=FakeSteps(cluster), clock=clock, executor=no_steps)
    Engine(adapters, states, Policy(), observe=lambda _event: None, cancel=threading.Event()).run()

    assert max(len(asked) for asked in cluster.asked) == ASKED_AT_ONCE
    uids = {each.uid for node in cluster.nodes.values() for each in node.pods}
    first = [uid for asked in cluster.asked[:4] for uid in asked]
    assert sorted(first) == sorted(uids), "each once before any is asked again"
    times = sum(uid == "uid-n0-0" for asked in cluster.asked for uid in asked)
    assert 2 <= times <= 60 / ASK_AGAIN.total_seconds() + 1


@dataclass
class Identical(FakeCluster):
    """A cluster that returns the same object for a node that has not changed, and counts those that are new."""

    views: dict[str, NodeView] = field(default_factory=dict)

    def observe(self, nodes: Collection[str]) -> dict[str, NodeView]:  # type: ignore[override]  # no node is missing
        for name, seen in super().observe(nodes).items():
            if self.views.get(name) != seen:
                self.views[name] = seen  # type: ignore[assignment]  # no node is missing
        return dict(self.views)


def test_nodes_are_upgraded_where_only_what_changes_is_a_new_object() -> None:
    plain = fleet("n1", "n2", "n3")
    cluster = Identical(plain.nodes)
    engine = make_engine(cluster, FakeSteps(cluster), states_of(cluster), Policy(), Clock())
    engine.run()
    assert {node.record.phase for node in cluster.nodes.values() if node.record} == {Phase.DONE}


def test_of_several_records_that_are_written_at_once_a_conflict_costs_only_its_own() -> None:
    cluster = fleet("n1", "n2", "n3")
    conflicts = iter([ConflictError("n2 was changed by somebody else meanwhile")])

    def touched(what: str) -> None:
        if what == "write n2 cordon" and (error := next(conflicts, None)) is not None:
            raise error

    cluster.effect = touched
    make_engine(
        cluster, FakeSteps(cluster), states_of(cluster), Policy(max_parallel=3, max_unavailable=3), Clock()
    ).run()
    assert [(node, phase) for node, phase, _ in cluster.writes][:2] == [("n1", Phase.CORDON), ("n3", Phase.CORDON)]
    assert {node.record.phase for node in cluster.nodes.values() if node.record} == {Phase.DONE}


def test_what_is_written_before_an_error_is_known_and_what_comes_after_it_is_not_tried() -> None:
    cluster = fleet("n1", "n2", "n3")

    def forbid(what: str) -> None:
        if what == "write n2 cordon":
            raise ForbiddenError("may not patch nodes")

    cluster.effect = forbid
    result = make_engine(
        cluster, FakeSteps(cluster), states_of(cluster), Policy(max_parallel=3, max_unavailable=3), Clock()
    ).run()
    assert result.stop == "may not patch nodes"
    assert result.moved == {"n1"}
    assert [(node, phase) for node, phase, _ in cluster.writes] == [("n1", Phase.CORDON)]


def test_reasons_are_told_even_after_a_turn_that_ended_with_a_conflict() -> None:
    cluster, seen = fleet("n1", "n2"), list[RolloutProgress]()
    conflicts = iter([ConflictError("n1 was changed by somebody else meanwhile")])

    def touched(what: str) -> None:
        if what == "write n1 cordon" and (error := next(conflicts, None)) is not None:
            raise error

    cluster.effect = touched
    make_engine(cluster, FakeSteps(cluster), states_of(cluster), Policy(), Clock(), observe=seen.append).run()
    waits = [each.reason for each in seen if isinstance(each, NodeWaits) and each.node == "n2"]
    assert waits[0].startswith("waits for n1")
