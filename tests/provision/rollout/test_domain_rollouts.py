"""Whole rollouts of domains, cut short and failing anywhere: no two drivers ever serve in one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provision.rollout.decision.outcome import results_of
from provision.rollout.decision.policy import Policy
from provision.rollout.model import NodeView, Phase
from tests.provision.rollout.fakes import (
    NEW,
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
from tests.provision.rollout.test_domains import BOLD, domain_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from provision.apply.model import NodeResult
    from provision.rollout.decision.snapshot import NodeState

IN_SERVICE = (Phase.DONE, Phase.RETURNED)


@dataclass
class Watch:
    """Holds what must be true of domains against every change, at the moment at which it is made."""

    cluster: FakeCluster
    former: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.former = {name: node.driver for name, node in self.cluster.nodes.items()}

    def change(self, what: str) -> None:
        verb, name, *rest = what.split()
        if verb == "write" and rest in (["done"], ["returned"]):
            self.enter_service(name)
        if verb == "swap":
            for other in self.mates(name):
                found = self.cluster.nodes[other]
                assert not is_in_service(found) or found.driver == NEW, f"{name} is swapped while {other} serves"

    def enter_service(self, name: str) -> None:
        driver = self.cluster.nodes[name].driver
        for other in self.mates(name):
            found = self.cluster.nodes[other]
            if is_in_service(found):
                assert found.driver == driver, f"{name} serves with {driver}, and {other} with {found.driver}"

    def mates(self, name: str) -> list[str]:
        rack = domain_of(name)
        return [other for other in self.cluster.nodes if rack and other != name and domain_of(other) == rack]


def is_in_service(node: FakeNode) -> bool:
    return not node.problem and (node.record is None or node.record.phase in IN_SERVICE)


def states_of(cluster: FakeCluster) -> list[NodeState]:
    return [
        state(
            name,
            NodeView(name=name, record=node.record, is_cordoned=node.is_cordoned, is_ready=node.is_ready),
            origin=node.driver,
            is_disruptive=node.driver != NEW,
            is_as_declared=node.driver == NEW,
            domain=domain_of(name),
        )
        for name, node in cluster.nodes.items()
    ]


def fleet(*names: str) -> FakeCluster:
    return FakeCluster({name: FakeNode(pods=[pod(f"{name}-a")]) for name in names})


def roll_out(
    cluster: FakeCluster, policy: Policy = BOLD, die: Callable[[str], None] = lambda _what: None
) -> dict[str, NodeResult]:
    watch = Watch(cluster)

    def effect(what: str) -> None:
        die(what)
        watch.change(what)

    cluster.effect = effect
    ending = make_engine(
        cluster, FakeSteps(cluster, effect), states_of(cluster), policy, Clock(step=timedelta(seconds=10))
    ).run()
    return results_of(ending, list(cluster.nodes), canceled=False)


def drivers(cluster: FakeCluster) -> dict[str, str]:
    return {name: node.driver for name, node in cluster.nodes.items()}


def test_a_fleet_of_domains_is_changed_domain_by_domain() -> None:
    cluster = fleet("a1", "a2", "b1", "b2", "n1")
    results = roll_out(cluster, Policy(max_parallel=2, max_unavailable=3))
    assert {result.status.value for result in results.values()} == {"converged"}
    assert cluster.most_out <= 2


@pytest.mark.parametrize("phase", [Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME])
def test_one_node_that_fails_takes_its_domain_back_and_no_other(phase: Phase) -> None:
    cluster = fleet("a1", "a2", "a3", "b1", "b2")
    cluster.nodes["a2"].broken = phase
    results = roll_out(cluster, replace(BOLD, max_failures=1))
    is_back = phase is not Phase.RELEASE
    assert [results[name].status.value for name in cluster.nodes] == [
        "returned", "returned" if is_back else "failed", "returned", "converged", "converged",
    ]  # fmt: skip
    assert drivers(cluster) == dict.fromkeys(("a1", "a2", "a3"), OLD) | dict.fromkeys(("b1", "b2"), NEW)
    assert [node.is_cordoned for node in cluster.nodes.values()] == [False, not is_back, False, False, False]
    failure = results["a1"].failure
    assert failure is not None
    assert failure.message == f"returned to {OLD}, since a2 of its domain failed: {phase} is broken"
    cluster.nodes["a2"].broken = None
    assert {result.status.value for result in roll_out(cluster).values()} <= {"converged", "waiting"}
    assert set(drivers(cluster).values()) == {NEW}


def test_a_domain_of_which_one_cannot_go_back_serves_without_it() -> None:
    cluster = fleet("a1", "a2")
    cluster.nodes["a2"].broken, cluster.nodes["a2"].broken_back = Phase.VERIFY, Phase.ROLLBACK
    results = roll_out(cluster)
    assert [result.status.value for result in results.values()] == ["returned", "failed"]
    assert [node.is_cordoned for node in cluster.nodes.values()] == [False, True]


@pytest.mark.parametrize("names", [("a1", "a2"), ("n2",)], ids=["a domain", "a node on its own"])
def test_a_node_whose_kubelet_goes_once_its_driver_is_verified_is_not_waited_for_for_ever(names: tuple[str]) -> None:
    cluster = fleet(*names)
    lost = names[-1]

    def lose(what: str) -> None:
        if what == f"write {lost} verify":
            cluster.nodes[lost].is_ready = False

    results = roll_out(cluster, die=lose)

    assert set(drivers(cluster).values()) == {OLD}
    assert [result.status.value for result in results.values()] == ["returned"] * (len(names) - 1) + ["failed"]
    failure = results[lost].failure
    assert failure is not None
    assert "the kubelet is not ready" in failure.message


def run_killed_at(cluster: FakeCluster, effect: int, policy: Policy) -> bool:
    left = iter(range(effect))

    def die(what: str) -> None:
        if next(left, None) is None:
            raise KilledError(what)

    try:
        roll_out(cluster, policy, die)
    except KilledError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("broken", [None, Phase.SWAP, Phase.VERIFY, Phase.RESUME])
def test_killed_at_any_point_no_domain_ever_serves_with_two_drivers(broken: Phase | None) -> None:
    effect = 0
    while True:
        cluster = fleet("a1", "a2", "n1")
        cluster.nodes["a2"].broken = broken
        lived = run_killed_at(cluster, effect, replace(BOLD, max_failures=3))
        roll_out(cluster, replace(BOLD, max_failures=3))
        if broken is None:
            assert set(drivers(cluster).values()) == {NEW}, effect
            assert not any(node.is_cordoned for node in cluster.nodes.values()), effect
        else:
            serving = {node.driver for name, node in cluster.nodes.items() if name[0] == "a" and is_in_service(node)}
            assert len(serving) <= 1, effect
        for name, node in cluster.nodes.items():
            assert node.record is None or node.record.phase.is_over, (effect, name)
        if lived:
            break
        effect += 1
    assert effect > 15


def unfinished(nodes: Iterable[NodeState]) -> list[str]:
    return [node.name for node in nodes if node.is_in_flight or node.wants_to_begin]


@st.composite
def racks(draw: st.DrawFn) -> FakeCluster:
    names = [f"{rack}{number}" for rack in "abn" for number in range(1, draw(st.integers(1, 3)) + 1)]
    steps = (Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME)
    nodes = {}
    for name in draw(st.permutations(names)):
        nodes[name] = FakeNode(
            is_cordoned=draw(st.integers(0, 9)) == 0,
            is_ready=draw(st.integers(0, 9)) > 0,
            pods=[pod(f"{name}-a")] if draw(st.booleans()) else [],
            held_for=draw(st.sampled_from([0, 0, 1, 500])),
            broken=draw(st.sampled_from((None, None, None, *steps))),
            broken_back=draw(st.sampled_from((None, None, None, Phase.ROLLBACK, Phase.VERIFY, Phase.RESUME))),
        )
    return FakeCluster(nodes, budget=draw(st.sampled_from([0, 99, 99])))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    racks(),
    st.builds(
        Policy,
        max_parallel=st.integers(1, 5),
        max_unavailable=st.integers(1, 6),
        max_failures=st.sampled_from([0, 1, 9]),
    ),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_whatever_fails_or_is_killed_no_domain_serves_with_two_drivers(
    cluster: FakeCluster, policy: Policy, kills: list[int]
) -> None:
    for kill in kills:
        run_killed_at(cluster, kill, policy)
    results = roll_out(cluster, policy)
    for name, result in results.items():
        node = cluster.nodes[name]
        assert node.record is None or node.record.phase.is_over, f"{name} is left half-way"
        assert result.status.is_good or result.failure is not None
    for rack in ("rack-a", "rack-b"):
        serving = {
            node.driver for name, node in cluster.nodes.items() if domain_of(name) == rack and is_in_service(node)
        }
        assert len(serving) <= 1, rack
