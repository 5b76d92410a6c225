"""Nodes that do not get on, and nobody knows why: what is on every list of complaints first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import Blackout, Wave, Window
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from provision.rollout.status import situations
from tests.provision.rollout.situations.fleets import NEW, OLD, Fleet, fleet

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_S = 3600.0


def hold_with_kured(stage: Fleet) -> None:
    stage.machines["n2"].held_by = "kured is rebooting it: waits until kured takes the annotation away"


def pause_for_hours(stage: Fleet) -> None:
    stage.world.pause = Pause(by="ada@laptop", reason="GPUs get warm")
    stage.at(6 * HOUR_S, lambda: setattr(stage.world, "pause", None))


def stick_a_pod(stage: Fleet) -> None:
    for pod in stage.machines["n1"].pods.values():
        pod.is_stuck = True


def break_the_swap(stage: Fleet) -> None:
    stage.machines["n1"].broken[Phase.SWAP] = "apt: broken"


def lose_a_node(stage: Fleet) -> None:
    stage.machines["n3"].is_up = False


def skip_a_node(stage: Fleet) -> None:
    stage.machines["n3"].is_skipped = True


def nothing(_stage: Fleet) -> None:
    """Only the policy makes nodes wait."""


@pytest.mark.parametrize(
    ("happens", "rollout"),
    [
        pytest.param(nothing, {}, id="one after the other"),
        pytest.param(nothing, {"waves": (Wave(size=1, soak_minutes=120), Wave())}, id="a canary that soaks"),
        pytest.param(nothing, {"windows": (Window(start="15:00", end="19:00", time_zone="UTC"),)}, id="a window"),
        pytest.param(
            nothing,
            {"blackouts": (Blackout(first="2026-05-01", last="2026-05-04T15:00", time_zone="UTC"),)},
            id="a blackout",
        ),
        pytest.param(pause_for_hours, {}, id="a pause of hours"),
        pytest.param(hold_with_kured, {}, id="another tool"),
        pytest.param(stick_a_pod, {}, id="a pod that never ends"),
        pytest.param(break_the_swap, {}, id="a failure"),
        pytest.param(lose_a_node, {}, id="a node that is not ready"),
        pytest.param(skip_a_node, {}, id="a node that is skipped"),
    ],
)
def test_every_node_that_waits_says_why_in_every_moment_however_long(
    happens: Callable[[Fleet], None], rollout: dict[str, object]
) -> None:
    """NVIDIA/gpu-operator 2509: most nodes stood in upgrade-required for weeks, and nothing said why."""
    stage = fleet()
    happens(stage)
    results = stage.apply(**rollout)

    silent = [
        node.name
        for look in stage.looks
        for node in look.nodes
        if node.situation in {situations.WAITING, situations.NOT_BEGUN, situations.SKIPPED, situations.IDLE}
        and not node.reason
    ]
    assert silent == []
    assert stage.looks
    assert set(stage.reasons) == {name for name, result in results.items() if result != "converged"}


@pytest.mark.parametrize("phase", [Phase.VERIFY, Phase.RESUME])
def test_a_node_that_never_gets_valid_comes_to_an_end_and_does_not_stay_in_between(phase: Phase) -> None:
    """NVIDIA/gpu-operator 626: nodes stayed in validation-required and pod-restart-required for ever."""
    stage = fleet(2)
    stage.machines["n1"].broken[phase] = "a check does not pass"

    results = stage.apply(max_failures=1)
    assert results["n1"] in {"returned", "failed"}
    assert results["n2"] == "converged"
    record = stage.machines["n1"].record
    assert record is not None
    assert record.phase.is_over
    assert "a check does not pass" in record.reason


def test_one_node_that_is_not_ready_stops_no_other() -> None:
    """NVIDIA/gpu-operator 688: with one NotReady node the upgrade of all others did not even begin."""
    stage = fleet()
    lose_a_node(stage)

    results = stage.apply(max_unavailable=2)
    assert results == {"n1": "converged", "n2": "converged", "n3": "waiting", "n4": "converged"}
    assert stage.reasons["n3"] == "n3 is not ready: bring its kubelet back first"


def test_a_broken_node_that_is_skipped_stops_no_other_and_is_no_failure() -> None:
    """NVIDIA/gpu-operator 688: nor did NVIDIA's skip label on the broken node help."""
    stage = fleet()
    lose_a_node(stage)
    skip_a_node(stage)

    results = stage.apply(max_unavailable=2)
    assert results == {"n1": "converged", "n2": "converged", "n3": "skipped", "n4": "converged"}


def test_where_a_node_that_is_not_ready_uses_up_the_limit_it_is_named_and_the_apply_ends() -> None:
    """NVIDIA/gpu-operator 688, where maxUnavailable leaves no room: a word instead of silence."""
    stage = fleet()
    lose_a_node(stage)

    assert set(stage.apply(max_unavailable=1).values()) == {"waiting"}
    assert stage.stop == "1 of 4 nodes may be unavailable: n3 is not ready"
    assert stage.world.time.now_s < HOUR_S


def test_no_node_is_called_done_before_it_is_verified_and_back_in_service() -> None:
    """NVIDIA/gpu-operator 1567: the status was Ready before all nodes were upgraded."""
    stage = fleet()
    early: list[str] = []

    def check(machine_name: str) -> None:
        machine = stage.machines[machine_name]
        if machine.verified != NEW or machine.is_cordoned or machine.is_released:
            early.append(machine_name)

    stage.on_phase = lambda machine, phase: check(machine.name) if phase is Phase.DONE else None
    stage.apply()

    assert early == []
    done = [sum(node.situation is situations.DONE for node in look.nodes) for look in stage.looks]
    assert done == sorted(done)
    assert done[-1] == 4
    assert OLD not in {machine.driver for machine in stage.machines.values()}
