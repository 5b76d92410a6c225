"""A driver that is exchanged under work that still uses it, which ends in crash loops and stale files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.rollout.model import Phase
from provision.rollout.simulate.machine import Pod
from tests.provision.rollout.fakes import FakeCluster, FakeNode, pod
from tests.provision.rollout.model.process import KilledError
from tests.provision.rollout.process import Rollout, statuses
from tests.provision.rollout.situations.fleets import NEW, OLD, Fleet, fleet

if TYPE_CHECKING:
    from provision.rollout.simulate.machine import Machine


def test_no_driver_is_exchanged_while_a_process_has_a_gpu_open() -> None:
    """NVIDIA/gpu-operator 2166, 83, 180, 367: the module could not be unloaded; the driver pod crashed in a loop."""
    stage = fleet(2)
    stage.machines["n1"].holders = 10_000

    results = stage.apply()
    assert results == {"n1": "failed", "n2": "waiting"}
    assert "a GPU is held by train (7)" in stage.reasons["n1"]
    assert (stage.machines["n1"].driver, stage.machines["n2"].driver) == (OLD, OLD)
    assert Phase.SWAP not in stage.machines["n1"].attempts, "nothing was tried that could fail half-way"

    stage.machines["n1"].holders = 0  # somebody has ended it
    assert stage.apply() == {"n1": "converged", "n2": "converged"}


def test_pods_that_have_a_gpu_and_do_nothing_with_it_leave_as_well() -> None:
    """NVIDIA/gpu-operator 416: idle pods stayed, and held stale files of the former driver."""
    stage = fleet(2, pods=3)
    left: dict[str, int] = {}

    def count(machine: Machine, phase: Phase) -> None:
        if phase is Phase.SWAP:
            left[machine.name] = len(machine.pods)

    stage.on_phase = count
    assert set(stage.apply().values()) == {"converged"}
    assert left == {"n1": 0, "n2": 0}


def test_a_pod_that_holds_a_gpu_without_having_asked_for_one_is_found_and_leaves() -> None:
    """NVIDIA/gpu-operator 2570: pods by RuntimeClass alone are never evicted, and the driver cannot be unloaded."""
    cluster = FakeCluster({"n1": FakeNode(hidden=[pod("by-runtime-class")])})

    assert statuses(Rollout(cluster).run()) == ["converged"]
    assert cluster.evicted == ["by-runtime-class"]


def test_a_daemon_set_that_holds_a_gpu_is_named_and_the_driver_left_alone() -> None:
    """NVIDIA/gpu-operator 2570: an exporter that runs as a DaemonSet kept the module loaded, and nothing said who."""
    stays = pod("dcgm-exporter", is_mirror_or_daemon=True, controller="DaemonSet/dcgm-exporter")
    cluster = FakeCluster({"n1": FakeNode(pods=[stays], held_for=10_000)})

    result = Rollout(cluster).run()["n1"]
    assert result.failure is not None
    assert result.failure.message == "after 5 minutes: a GPU is held by train (7)"
    assert cluster.nodes["n1"].driver == OLD


def test_what_came_back_to_a_node_while_nobody_was_at_work_leaves_before_its_driver_goes() -> None:
    """NVIDIA/gpu-operator 2166: a node that was interrupted half-way got workloads again before its driver changed."""
    stage = stopped_before_the_swap()
    machine = stage.machines["n1"]
    stage.world.uncordon("n1")
    stage.world.place("n1", [_web()])
    seen: list[int] = []
    stage.on_phase = lambda found, phase: seen.append(len(found.pods)) if phase is Phase.SWAP else None

    assert stage.apply() == {"n1": "converged"}
    assert seen[-1] == 0
    assert machine.driver == NEW


def stopped_before_the_swap() -> Fleet:
    """Return a node whose apply was killed when it was about to exchange the driver."""
    stage = fleet(1)

    def pull_the_plug(_machine: Machine, phase: Phase) -> None:
        if phase is Phase.SWAP:
            raise KilledError

    stage.on_phase = pull_the_plug
    with pytest.raises(KilledError):
        stage.apply()
    stage.on_phase = lambda _machine, _phase: None
    return stage


def _web() -> Pod:
    return Pod(namespace="shop", name="web-9", uid="web-9", grace_s=20.0, controller="ReplicaSet")
