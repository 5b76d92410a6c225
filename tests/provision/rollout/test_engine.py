"""Whole rollouts on a fleet in memory."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from provision.apply.model import Status
from provision.rollout.decision.outcome import RolloutResult, results_of
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.errors import ConflictError
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import (
    MINUTE,
    NEW,
    NOON,
    OLD,
    Clock,
    FakeCluster,
    FakeNode,
    FakeSteps,
    make_engine,
    pod,
    record,
    state,
    view,
)
from tests.provision.rollout.process import Rollout, fleet, states_of, statuses

WAY = [Phase.CORDON, Phase.DRAIN, Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.DONE]
STEPS = [Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME]


def test_nodes_are_upgraded_one_after_the_other() -> None:
    cluster = fleet("n1", "n2", "n3")
    results = Rollout(cluster).run()
    assert statuses(results) == ["converged"] * 3
    assert [(node, phase) for node, phase, _ in cluster.writes] == list(itertools.product(cluster.nodes, WAY))
    assert [cordoned for node, _, cordoned in cluster.writes if node == "n1"] == [True] * 6 + [False]
    assert cluster.most_out == 1
    for node in cluster.nodes.values():
        assert (node.driver, node.is_cordoned, node.is_released, node.pods) == (NEW, False, False, [])
        assert node.touched == STEPS


def test_the_result_tells_versions_and_the_time_out_of_service() -> None:
    result = Rollout(fleet("n1")).run()["n1"]
    assert (result.passes, result.changes) == (1, 11)
    upgrade = result.upgrade
    assert upgrade is not None
    assert (upgrade.origin, upgrade.target, upgrade.is_out) == (OLD, NEW, False)
    assert upgrade.out_of_service_s > 0


def test_progress_names_every_phase() -> None:
    rollout = Rollout(fleet("n1"))
    rollout.run()
    assert [one.phase for one in rollout.seen if isinstance(one, PhaseEntered)] == WAY


def test_budgets_are_respected_and_named() -> None:
    cluster = fleet("n1", "n2")
    cluster.budget = 1
    results = Rollout(cluster).run()
    assert statuses(results) == ["failed", "waiting"]
    assert cluster.evicted == ["n1-a"]
    assert results["n1"].failure is not None
    message = "after 5 minutes: pod shop/n1-b (budget web allows no more) still on the node"
    assert results["n1"].failure.message == message


def test_a_budget_that_gives_way_is_waited_for() -> None:
    cluster = fleet("n1")
    cluster.budget = 1
    looks = itertools.count()

    def replace_pod() -> None:
        cluster.budget = 1 if next(looks) == 20 else cluster.budget

    cluster.on_observe = replace_pod
    assert statuses(Rollout(cluster).run()) == ["converged"]


def test_a_process_that_holds_a_gpu_is_waited_for() -> None:
    cluster = fleet("n1")
    cluster.nodes["n1"].held_for = 3
    rollout = Rollout(cluster)
    assert statuses(rollout.run()) == ["converged"]
    assert cluster.nodes["n1"].touched == [Phase.RELEASE] * 3 + STEPS


def test_a_process_that_stays_fails_the_node() -> None:
    cluster = fleet("n1")
    cluster.nodes["n1"].held_for = 10_000
    result = Rollout(cluster).run()["n1"]
    assert result.failure is not None
    assert result.failure.message == "after 5 minutes: a GPU is held by train (7)"
    assert Phase.SWAP not in cluster.nodes["n1"].touched


def test_several_nodes_are_changed_at_the_same_time() -> None:
    cluster = fleet("n1", "n2", "n3", "n4")
    together = threading.Barrier(2, timeout=20)

    def meet(_node: str, phase: Phase, _cancel: threading.Event) -> None:
        if phase is Phase.SWAP:
            together.wait()

    rollout = Rollout(cluster, Policy(max_parallel=2, max_unavailable=2), FakeSteps(cluster, meet=meet))
    assert statuses(rollout.run()) == ["converged"] * 4
    assert cluster.most_out == 2


def test_nodes_in_flight_are_finished_when_another_fails() -> None:
    cluster = fleet("n1", "n2", "n3")
    cluster.nodes["n1"].broken = Phase.SWAP
    n1_has_failed = threading.Event()

    def meet(node: str, phase: Phase, _cancel: threading.Event) -> None:
        if node == "n2" and phase is Phase.SWAP:
            assert n1_has_failed.wait(20)

    cluster.effect = lambda what: n1_has_failed.set() if what == "write n1 rollback" else None
    rollout = Rollout(cluster, Policy(max_parallel=2, max_unavailable=2), FakeSteps(cluster, meet=meet))
    assert statuses(rollout.run()) == ["returned", "converged", "waiting"]
    assert cluster.nodes["n3"].touched == []


def test_cancel_ends_the_running_step_and_keeps_the_record() -> None:
    cluster = fleet("n1", "n2")

    def interrupt(_node: str, phase: Phase, cancel: threading.Event) -> None:
        if phase is Phase.SWAP:
            cancel.set()

    results = Rollout(cluster, steps=FakeSteps(cluster, meet=interrupt)).run()
    assert statuses(results) == ["canceled", "canceled"]
    assert results["n1"].failure is not None
    assert results["n1"].failure.message == "in swap: `grapnel apply` continues from there"
    assert results["n2"].failure is not None
    assert results["n2"].failure.message == "not started"
    assert cluster.nodes["n1"].record is not None
    assert cluster.nodes["n1"].record.phase is Phase.SWAP
    assert statuses(Rollout(cluster).run()) == ["converged", "converged"]


def test_what_somebody_else_changed_is_looked_at_again() -> None:
    cluster = fleet("n1")
    once = iter([True])

    def refuse(what: str) -> None:
        if what == "write n1 swap" and next(once, False):
            raise ConflictError("n1 was changed by somebody else")

    cluster.effect = refuse
    assert statuses(Rollout(cluster).run()) == ["converged"]


def test_nodes_that_nothing_can_be_done_about_are_told() -> None:
    cluster = fleet("n1")
    cluster.nodes["n7"] = FakeNode(driver=NEW, is_cordoned=True)
    ending = Rollout(cluster).end()
    assert ending.stop == "1 of 2 nodes may be unavailable: n7 is cordoned"
    assert cluster.writes == []


def test_soaking_takes_its_time() -> None:
    cluster = fleet("n1", "n2")
    rollout = Rollout(cluster, Policy(soak=timedelta(minutes=2)))
    assert statuses(rollout.run()) == ["converged", "converged"]
    first, second = (cluster.nodes[name].record for name in ("n1", "n2"))
    assert first is not None
    assert second is not None
    assert second.began - first.since >= timedelta(minutes=2)


@pytest.mark.parametrize("bug", [TypeError, RecursionError, MemoryError, ZeroDivisionError])
def test_a_bug_in_a_step_fails_its_node_and_ends_no_other(bug: type[Exception]) -> None:
    together = threading.Barrier(3, timeout=60)

    def crash(what: str) -> None:
        if what.startswith("swap"):
            together.wait()
        if what == "swap n2":
            raise bug("it broke")

    cluster = fleet("n1", "n2", "n3")
    rollout = Rollout(cluster, Policy(max_parallel=3, max_unavailable=3), steps=FakeSteps(cluster, crash))
    results = rollout.run()
    assert statuses(results) == ["converged", "returned", "converged"]
    failed = results["n2"].failure
    assert failed is not None
    assert failed.message.startswith(
        f"returned to {OLD}, since swap failed: a bug while running swap on n2: {bug.__name__}: it broke"
    )
    assert failed.message.endswith("run it again with --debug and report what it prints")
    assert not rollout.cancel.is_set()


def test_a_bug_of_whoever_looks_on_ends_the_rollout() -> None:
    def crash(_progress: object) -> None:
        raise ZeroDivisionError

    cluster, cancel = fleet("n1"), threading.Event()
    engine = make_engine(
        cluster, FakeSteps(cluster), states_of(cluster), Policy(), Clock(), observe=crash, cancel=cancel
    )
    with pytest.raises(ZeroDivisionError):
        engine.run()
    assert cancel.is_set()


def test_a_finished_fleet_is_left_alone() -> None:
    cluster = FakeCluster({"n1": FakeNode(record=record(Phase.DONE), driver=NEW)})
    ending = Rollout(cluster).end()
    assert (ending.moved, cluster.writes) == (frozenset(), [])
    assert ending.nodes[0].view == view("n1", record(Phase.DONE))
    assert Status.WAITING not in {result.status for result in results_of(ending, [], canceled=False).values()}


def test_reasons_are_published_with_who_is_worked_at() -> None:
    cluster = fleet("n1", "n2", "n3")
    Rollout(cluster).run()

    swapping = [each for each in cluster.published if each.waiting.get("n2") == "waits for n1: swap"]
    assert swapping
    assert all(each.out == {"n1"} and set(each.waiting) == {"n2", "n3"} for each in swapping)
    last = cluster.published[-1]
    assert (last.out, dict(last.waiting), last.stop, last.at_once) == (frozenset(), {}, "", 1)


def test_why_it_has_stopped_is_published_last() -> None:
    cluster = fleet("n1", "n2")
    cluster.nodes["n1"].broken = Phase.VERIFY
    Rollout(cluster).run()

    assert cluster.published[-1].stop == "n1 failed in verify"
    assert cluster.published[-1].waiting == {"n2": "stopped: n1 failed in verify"}


def test_a_record_keeps_how_long_each_phase_took() -> None:
    cluster = fleet("n1")
    Rollout(cluster).run()

    kept = cluster.nodes["n1"].record
    assert kept is not None
    assert list(kept.took) == WAY[:-1]
    assert sum(kept.took.values()) == pytest.approx((kept.since - kept.began).total_seconds(), abs=0.5)


def test_a_phase_that_another_engine_began_or_that_failed_is_not_measured() -> None:
    cluster = fleet("n1", "n2")
    cluster.nodes["n1"].record = record(Phase.DRAIN, took={Phase.CORDON: 1.0})
    cluster.nodes["n1"].is_cordoned = True
    cluster.nodes["n2"].broken = Phase.SWAP
    Rollout(cluster).run()

    going_on, failed = cluster.nodes["n1"].record, cluster.nodes["n2"].record
    assert going_on is not None
    assert going_on.took.keys() == {Phase.CORDON, Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME}
    assert failed is not None
    assert failed.took.keys() == {Phase.CORDON, Phase.DRAIN, Phase.RELEASE}


def test_what_waves_still_pause_is_published() -> None:
    cluster = fleet("n1", "n2")
    states = [replace(each, wave=index) for index, each in enumerate(states_of(cluster))]
    first, second = WavePolicy(title="wave 1 of 2", soak=timedelta(minutes=1)), WavePolicy(title="wave 2 of 2")
    make_engine(cluster, FakeSteps(cluster), states, Policy(waves=(first, second)), Clock()).run()

    assert phases_of(cluster) == [Phase.DONE, Phase.DONE]
    assert cluster.published[0].wave_soak == timedelta(minutes=1)
    assert cluster.published[-1].wave_soak == timedelta(0)


def phases_of(cluster: FakeCluster) -> list[Phase | None]:
    return [node.record.phase if node.record else None for node in cluster.nodes.values()]


def test_a_pod_that_holds_a_gpu_without_having_asked_for_one_is_evicted() -> None:
    cluster = fleet("n1", "n2")
    cluster.nodes["n1"].hidden = [pod("smi")]

    results = Rollout(cluster).run()

    assert statuses(results) == ["converged"] * 2
    assert cluster.evicted == ["n1-a", "n1-b", "smi", "n2-a", "n2-b"]
    assert [phase for node, phase, _ in cluster.writes if node == "n1"] == WAY


def test_a_pod_that_is_left_alone_and_holds_a_gpu_is_what_the_node_fails_for() -> None:
    cluster = fleet("n1")
    cluster.nodes["n1"].hidden = [pod("agent", is_mirror_or_daemon=True, controller="DaemonSet/agent")]

    results = Rollout(cluster).run()

    assert statuses(results) == ["failed"]
    assert results["n1"].failure is not None
    message = "after 5 minutes: a GPU is held by smi (8, pod shop/agent of DaemonSet agent, left alone: "
    assert results["n1"].failure.message.startswith(message)
    assert cluster.evicted == ["n1-a", "n1-b"]


def test_a_node_that_fails_after_somebody_has_uncordoned_it_is_not_said_to_be_out_of_service() -> None:
    failed = record(Phase.FAILED, failed_in=Phase.DRAIN, reason="a pod stayed")
    serving, out = state("n1", view("n1", failed, is_cordoned=False)), state("n1", view("n1", failed))
    released = state("n1", view("n1", failed, is_cordoned=False), is_released=True)
    assert [each.takes_pods for each in (serving, out, released)] == [True, False, False]
    ended = RolloutResult(
        nodes=(serving,), moved=frozenset({"n1"}), waiting={}, stop="", failures={}, swapped={}, ended=NOON + MINUTE
    )
    upgrade = results_of(ended, ["n1"], canceled=False)["n1"].upgrade
    assert upgrade is not None
    assert not upgrade.is_out
    upgrade = results_of(replace(ended, nodes=(out,)), ["n1"], canceled=False)["n1"].upgrade
    assert upgrade is not None
    assert upgrade.is_out
