"""Rollouts that are killed, or that lose their cluster, at any point."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.apply.model import Note
from provision.cluster.errors import ForbiddenError
from provision.rollout.decision.policy import Policy
from provision.rollout.errors import LeaseLostError, UnreachableError
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import (
    CALM,
    NEW,
    OLD,
    FakeCluster,
    FakeSteps,
    KilledError,
    killed_at,
)
from tests.provision.rollout.process import Rollout, fleet, statuses

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable


def run_killed_at(cluster: FakeCluster, effect: int, policy: Policy) -> bool:
    """Run a process that is killed before its nth effect; return whether it lived to its end."""
    die = cluster.effect = killed_at(effect)
    try:
        Rollout(cluster, policy, FakeSteps(cluster, die)).end()
    except KilledError:
        return False
    finally:
        cluster.effect = CALM
    return True


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
def test_killed_at_any_point_and_applied_again_comes_to_the_same_end(slots: int) -> None:
    policy = Policy(max_parallel=slots, max_unavailable=slots)
    for effect in itertools.count():
        cluster = fleet("n1", "n2", "n3")
        cluster.nodes["n1"].held_for = 1
        cluster.nodes["n3"].is_cordoned = True
        lived = run_killed_at(cluster, effect, replace(policy, max_unavailable=slots + 1))
        Rollout(cluster, replace(policy, max_unavailable=slots + 1)).end()
        for name, node in cluster.nodes.items():
            assert node.record is not None, (effect, name)
            assert (node.record.phase, node.driver, node.is_released) == (Phase.DONE, NEW, False), (effect, name)
            assert node.is_cordoned is (name == "n3"), "what somebody else cordoned stays so"
        assert cluster.most_out <= slots
        if lived:
            break
    assert effect > 30, "every effect has been the last one once"


def test_killed_again_and_again() -> None:
    cluster = fleet("n1", "n2")
    while not run_killed_at(cluster, 2, Policy()):
        pass
    assert {node.driver for node in cluster.nodes.values()} == {NEW}
    assert not any(node.is_cordoned for node in cluster.nodes.values())


def fail_for(error: Exception, times: int, *, after: int = 10) -> Callable[[], None]:
    calls = itertools.count()

    def look() -> None:
        if after <= next(calls) < after + times:
            raise error

    return look


def test_a_short_silence_of_the_cluster_is_borne() -> None:
    cluster = fleet("n1")
    cluster.on_observe = fail_for(UnreachableError("cluster test does not answer"), 5)
    rollout = Rollout(cluster)
    assert statuses(rollout.run()) == ["converged"]
    assert Note("", "cluster test does not answer: trying again") in rollout.seen


@pytest.mark.parametrize(
    ("error", "stop"),
    [
        pytest.param(UnreachableError("no answer"), "no answer, for 60 seconds", id="silence"),
        pytest.param(ForbiddenError("may not list pods"), "may not list pods", id="forbidden"),
        pytest.param(LeaseLostError("the lease was lost"), "the lease was lost", id="lease lost"),
    ],
)
def test_without_the_cluster_it_stops_and_the_next_apply_goes_on(error: Exception, stop: str) -> None:
    cluster = fleet("n1", "n2")
    cluster.on_observe = fail_for(error, 10_000)
    results = Rollout(cluster).run()
    assert statuses(results) == ["unfinished", "waiting"]
    assert results["n1"].failure is not None
    assert stop in results["n1"].failure.message
    cluster.on_observe = lambda: None
    assert statuses(Rollout(cluster).run()) == ["converged", "converged"]


@pytest.mark.parametrize(
    ("error", "is_ended"),
    [
        pytest.param(LeaseLostError("the lease was lost"), True, id="another engine may be at the node"),
        pytest.param(ForbiddenError("may not list pods"), False, id="the step is finished"),
    ],
)
def test_a_step_that_runs_is_only_ended_when_another_engine_may_come(error: Exception, *, is_ended: bool) -> None:
    cluster, ended = fleet("n1"), []

    def lose(_node: str, phase: Phase, cancel: threading.Event) -> None:
        if phase is Phase.SWAP:
            cluster.on_observe = fail_for(error, 10_000, after=0)
            ended.append(cancel.wait(20 if is_ended else 0.2))

    assert statuses(Rollout(cluster, steps=FakeSteps(cluster, meet=lose)).run()) == ["unfinished"]
    assert (ended, cluster.nodes["n1"].driver) == ([is_ended], OLD if is_ended else NEW)


def test_no_step_begins_without_the_lease() -> None:
    cluster = fleet("n1")
    cluster.nodes["n1"].held_for = 3  # the release is tried again, for which nothing is written

    def lose() -> None:
        raise LeaseLostError("the lease was lost")

    def meet(_node: str, _phase: Phase, _cancel: threading.Event) -> None:
        cluster.check_lease = lose  # type: ignore[method-assign]  # while the machine slept

    result = Rollout(cluster, steps=FakeSteps(cluster, meet=meet)).run()["n1"]
    assert result.failure is not None
    assert "the lease was lost" in result.failure.message
    assert cluster.nodes["n1"].touched == [Phase.RELEASE]
