"""Pods that stay through an exchange of the driver have the former one's libraries, and nobody said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.model import Note
from provision.rollout.decision.drain import to_restart
from provision.rollout.decision.hours import outside_hours
from provision.rollout.decision.snapshot import Evict, Write
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import ChangeKind, Phase
from tests.provision.rollout.fakes import MINUTE, NOON, OLD, FakeCluster, FakeNode, pod, record, state, view
from tests.provision.rollout.moves import ended, move
from tests.provision.rollout.process import Rollout, statuses

if TYPE_CHECKING:
    from provision.rollout.model import GpuPod

BEFORE, AFTER = NOON - MINUTE, NOON + MINUTE
DAEMON: dict[str, Any] = {"is_mirror_or_daemon": True, "is_restarted": True, "controller": "DaemonSet/dcgm"}


def resumed(**more: object) -> Any:
    """Return what is done on a node that offers its GPUs again."""
    return move(Phase.RESUME, step=ended(Phase.RESUME, is_done=True), **more)[0]  # type: ignore[arg-type]  # fields by name


def daemon(name: str = "dcgm", **more: object) -> GpuPod:
    return pod(name, **{**DAEMON, "created": BEFORE, **more})


def test_they_are_asked_to_leave_when_the_gpus_are_offered_again() -> None:
    kept = daemon()
    assert move(Phase.VERIFY, gpu_pods=(kept,), step=ended(Phase.VERIFY, is_done=True))[0].record.phase is Phase.RESUME
    action = resumed(gpu_pods=(kept, pod("web")))
    assert action == Evict("n1", (kept,))


@pytest.mark.parametrize(
    ("left", "remembered"),
    [
        pytest.param(daemon(created=AFTER), {}, id="one that was made since"),
        pytest.param(daemon(is_terminating=True), {}, id="one that ends"),
        pytest.param(daemon(created=None), {}, id="one of which nothing is known"),
        pytest.param(daemon(), {"origin": OLD, "target": OLD}, id="one whose libraries are of the same version"),
        pytest.param(daemon(), {"origin": ""}, id="one on a node that had no driver"),
        pytest.param(pod("web", created=BEFORE), {}, id="one that came while the node was resumed"),
    ],
)
def test_no_other_is(left: GpuPod, remembered: dict[str, object]) -> None:
    more = {"target": remembered["target"]} if "target" in remembered else {}
    action = resumed(gpu_pods=(left,), remembered=remembered, **more)
    assert isinstance(action, Write)
    assert (action.record.phase, action.remark) == (Phase.DONE, "")


@pytest.mark.parametrize("remembered", [{"is_returning": True, "failed_in": Phase.VERIFY}, {"kind": ChangeKind.REBOOT}])
def test_no_pod_is_on_the_way_back_or_after_a_change_of_another_kind(remembered: dict[str, object]) -> None:
    found = record(Phase.RESUME, **remembered)
    assert to_restart(state("n1", view("n1", found, gpu_pods=(daemon(),))), found) == ()


def test_a_refusal_keeps_no_node_out_of_service_and_is_told() -> None:
    refused, goes = daemon(), daemon("other")
    assert resumed(gpu_pods=(refused, goes), blocked={"uid-dcgm": "budget x"}) == Evict("n1", (refused, goes))
    action = resumed(gpu_pods=(refused,), blocked={"uid-dcgm": "budget x"})
    assert isinstance(action, Write)
    assert action.record.phase is Phase.DONE
    assert action.remark == (
        f"still with the libraries of {OLD}, since before the exchange: pod shop/dcgm (budget x); "
        "restart what can be, such as by `kubectl delete pod -n shop dcgm`"
    )


def test_a_pod_that_is_left_alone_is_told_and_not_evicted() -> None:
    static = pod("static", is_mirror_or_daemon=True, created=BEFORE, controller="Node/n1")
    spared = pod("spared", stays="it has the label x=true", created=BEFORE)
    action = resumed(gpu_pods=(static, spared))
    assert isinstance(action, Write)
    assert "pod shop/static, pod shop/spared (it has the label x=true)" in action.remark


def test_it_is_done_outside_of_hours_as_well() -> None:
    found = record(Phase.RESUME)
    node, action = state("n1", view("n1", found, gpu_pods=(daemon(),))), Evict("n1", (daemon(),))
    assert outside_hours(node, found, action, "", "closed until noon") == (action, "")


@pytest.mark.parametrize(("budget", "is_restarted"), [(9, True), (0, False)])
def test_a_rollout_restarts_them_or_says_which_are_left(budget: int, is_restarted: bool) -> None:  # noqa: FBT001 - a column of the table
    cluster = FakeCluster({"n1": FakeNode(pods=[daemon()])}, budget=budget)
    rollout = Rollout(cluster)

    results = rollout.run()

    assert statuses(results) == ["converged"]
    assert cluster.evicted == (["dcgm"] if is_restarted else [])
    assert not cluster.nodes["n1"].is_cordoned
    (done,) = [each for each in rollout.seen if isinstance(each, PhaseEntered) and each.phase is Phase.DONE]
    told = [each.text for each in rollout.seen if isinstance(each, Note) and "libraries" in each.text]
    assert told == ([] if is_restarted else [done.remark])
    assert ("pod shop/dcgm (budget web allows no more)" in done.remark) is not is_restarted
    assert done.reason == ""
