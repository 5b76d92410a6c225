"""What the engine does with nodes that fail, go back, or cannot be reached."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from provision.rollout.decision.policy import Policy
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import (
    NEW,
    NOON,
    OLD,
    FakeNode,
    FakeSteps,
    record,
)
from tests.provision.rollout.process import Rollout, fleet, statuses

if TYPE_CHECKING:
    import threading


def test_a_node_that_fails_stops_the_rollout() -> None:
    cluster = fleet("n1", "n2", "n3")
    cluster.nodes["n2"].broken = Phase.VERIFY
    results = Rollout(cluster).run()
    assert statuses(results) == ["converged", "returned", "waiting"]
    failed, untouched = cluster.nodes["n2"], cluster.nodes["n3"]
    assert failed.record is not None
    assert (failed.record.phase, failed.record.failed_in) == (Phase.RETURNED, Phase.VERIFY)
    assert (failed.driver, failed.is_cordoned, failed.is_released) == (OLD, False, False), "it is in service again"
    assert results["n2"].failure is not None
    assert not results["n2"].is_good
    assert results["n2"].failure.message == f"returned to {OLD}, since verify failed: verify is broken"
    assert results["n2"].failure.tail == ("E: broken",)
    assert results["n3"].failure is not None
    assert results["n3"].failure.message == "stopped: n2 failed in verify"
    assert untouched == FakeNode(pods=untouched.pods)
    assert len(untouched.pods) == 2


def test_a_node_on_which_the_way_back_fails_as_well_is_quarantined_with_both_reasons() -> None:
    cluster = fleet("n1", "n2")
    cluster.nodes["n1"].broken, cluster.nodes["n1"].broken_back = Phase.VERIFY, Phase.ROLLBACK
    results = Rollout(cluster).run()
    assert statuses(results) == ["failed", "waiting"]
    failed = cluster.nodes["n1"]
    assert failed.record is not None
    assert (failed.record.phase, failed.record.failed_in) == (Phase.FAILED, Phase.ROLLBACK)
    assert (failed.is_cordoned, failed.is_released) == (True, True), "nothing that was not verified is offered"
    assert failed.record.reason == (
        "verify failed: verify is broken; the way back failed in rollback: rollback is broken"
    )
    assert results["n2"].failure is not None
    assert results["n2"].failure.message == "stopped: n1 failed in rollback"


@pytest.mark.parametrize("phase", [Phase.VERIFY, Phase.RESUME])
def test_a_former_driver_that_does_not_work_either_stays_out_of_service(phase: Phase) -> None:
    cluster = fleet("n1")
    cluster.nodes["n1"].broken, cluster.nodes["n1"].broken_back = Phase.SWAP, phase
    assert statuses(Rollout(cluster).run()) == ["failed"]
    failed = cluster.nodes["n1"]
    assert failed.record is not None
    assert failed.record.reason == f"swap failed: swap is broken; the way back failed in {phase}: {phase} is broken"
    assert failed.is_cordoned
    cluster.nodes["n1"].broken = None
    assert statuses(Rollout(cluster).run()) == ["converged"], "the next apply tries it again"
    assert (failed.driver, failed.is_cordoned) == (NEW, False)


def test_what_somebody_else_had_cordoned_stays_so_when_it_returns() -> None:
    cluster = fleet("n1")
    cluster.nodes["n1"].is_cordoned, cluster.nodes["n1"].broken = True, Phase.RESUME
    assert statuses(Rollout(cluster).run()) == ["returned"]
    assert cluster.nodes["n1"].is_cordoned


def test_a_node_that_returned_is_tried_again_by_the_next_apply_and_not_by_this_one() -> None:
    cluster = fleet("n1", "n2")
    cluster.nodes["n1"].broken = Phase.VERIFY
    assert statuses(Rollout(cluster, Policy(max_failures=1)).run()) == ["returned", "converged"]
    assert cluster.nodes["n1"].touched.count(Phase.SWAP) == 1
    cluster.nodes["n1"].broken = None
    assert statuses(Rollout(cluster).run())[0] == "converged"


def test_a_node_on_its_way_back_returns_before_it_gets_what_is_declared_by_now() -> None:
    cluster = fleet("n1")
    found = cluster.nodes["n1"]
    found.record, found.is_cordoned, found.driver = record(Phase.ROLLBACK, target="550.1"), True, "550.1"
    assert statuses(Rollout(cluster).run()) == ["converged"], "the failure of another version is no reason"
    assert [phase for _, phase, _ in cluster.writes][:3] == [Phase.VERIFY, Phase.RESUME, Phase.RETURNED]
    assert found.driver == NEW


def test_a_node_that_cannot_be_reached_for_a_while_goes_on() -> None:
    cluster, failing = fleet("n1"), iter(range(3))

    def cut(_node: str, phase: Phase) -> bool:
        return phase is Phase.SWAP and next(failing, None) is not None

    rollout = Rollout(cluster, steps=FakeSteps(cluster, is_cut=cut))
    assert statuses(rollout.run()) == ["converged"]
    assert cluster.nodes["n1"].touched.count(Phase.SWAP) == 4
    assert any("cannot be reached: no route to n1" in str(each) for each in rollout.seen)


@pytest.mark.parametrize(
    ("phase", "is_unrelated", "second"),
    [
        pytest.param(Phase.RELEASE, True, "converged", id="before the swap: not the doing of the change"),
        pytest.param(Phase.SWAP, False, "waiting", id="in the swap: the change may have done it"),
        pytest.param(Phase.VERIFY, False, "waiting", id="after it as well"),
    ],
)
def test_a_node_that_stays_unreachable_is_given_up(phase: Phase, second: str, *, is_unrelated: bool) -> None:
    cluster = fleet("n1", "n2")
    rollout = Rollout(cluster, steps=FakeSteps(cluster, is_cut=lambda node, at: (node, at) == ("n1", phase)))
    assert statuses(rollout.run()) == ["unreachable", second]
    failed = cluster.nodes["n1"].record
    assert failed is not None
    assert (failed.phase, failed.failed_in, failed.is_unrelated) == (Phase.FAILED, phase, is_unrelated)
    assert failed.reason.startswith("after 30 minutes: no route to n1")
    assert ("not the cause" in failed.reason) is is_unrelated


def test_an_ill_node_says_that_it_was_ill_before_and_stops_nobody() -> None:
    cluster = fleet("n1", "n2")
    cluster.nodes["n1"].ailment, cluster.nodes["n1"].broken = "GPU 3 has fallen off the bus (XID 79)", Phase.VERIFY
    results = Rollout(cluster).run()
    assert statuses(results) == ["returned", "converged"]
    assert results["n1"].failure is not None
    assert results["n1"].failure.message.endswith(
        "verify is broken; before the change already: GPU 3 has fallen off the bus (XID 79)"
    )


def test_what_failed_is_tried_first_by_the_next_apply() -> None:
    cluster = fleet("n1", "n2", "n3")
    cluster.nodes["n2"].broken = cluster.nodes["n2"].broken_back = Phase.VERIFY
    Rollout(cluster).run()
    cluster.nodes["n2"].broken = None
    cluster.writes.clear()
    assert statuses(Rollout(cluster).run())[1:] == ["converged", "converged"]
    assert list(dict.fromkeys(node for node, _, _ in cluster.writes)) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("where", "second"),
    [
        pytest.param(Phase.RELEASE, "converged", id="before its swap: the others go on"),
        pytest.param(Phase.SWAP, "waiting", id="in its swap: the driver may be the cause"),
    ],
)
def test_a_node_that_leaves_the_cluster_is_waited_for_and_then_given_up(where: Phase, second: str) -> None:
    cluster = fleet("n1", "n2")

    def leave(node: str, phase: Phase, _cancel: threading.Event) -> None:
        if (node, phase) == ("n1", where):
            cluster.nodes[node].problem = "n1 is no node of cluster test"

    rollout = Rollout(cluster, steps=FakeSteps(cluster, meet=leave))
    results = rollout.run()
    assert statuses(results) == ["failed", second]
    assert results["n1"].failure is not None
    assert results["n1"].failure.message == f"given up in {where}: n1 is no node of cluster test"
    assert rollout.clock.now - NOON >= timedelta(minutes=30)


def test_a_node_that_comes_back_to_the_cluster_goes_on() -> None:
    cluster, looks = fleet("n1"), itertools.count()

    def leave(node: str, phase: Phase, _cancel: threading.Event) -> None:
        if phase is Phase.SWAP:
            cluster.nodes[node].problem = "n1 is no node of cluster test"

    def come_back() -> None:
        if cluster.nodes["n1"].problem and next(looks) > 20:
            cluster.nodes["n1"].problem = ""

    cluster.on_observe = come_back
    assert statuses(Rollout(cluster, steps=FakeSteps(cluster, meet=leave)).run()) == ["converged"]


def test_a_node_whose_kubelet_comes_back_is_waited_for() -> None:
    cluster = fleet("n1")
    looks = itertools.count()

    def recover() -> None:
        cluster.nodes["n1"].is_ready = cluster.nodes["n1"].driver == OLD or next(looks) > 10

    cluster.on_observe = recover
    assert statuses(Rollout(cluster).run()) == ["converged"]
