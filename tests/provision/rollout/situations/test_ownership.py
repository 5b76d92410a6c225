"""Who is at a node, and what is left of it when they are gone."""

from __future__ import annotations

import pytest

from provision.rollout.errors import HeldError
from provision.rollout.model import Phase
from provision.rollout.simulate.cluster import DURATION_S
from tests.provision.rollout.model.process import KilledError
from tests.provision.rollout.situations.fleets import NEW, Fleet, fleet

MINUTE_S = 60.0


def kill(stage: Fleet, node: str, at: Phase, holder: str = "ada") -> None:
    """Apply, and pull the plug when a node enters a phase."""

    def pull_the_plug(machine: object, phase: Phase) -> None:
        if phase is at and machine is stage.machines[node]:
            raise KilledError

    stage.on_phase = pull_the_plug
    with pytest.raises(KilledError):
        stage.apply(holder)
    stage.on_phase = lambda _machine, _phase: None


def wait(stage: Fleet, seconds: float) -> None:
    until_s = stage.world.time.now_s + seconds
    while stage.world.time.now_s < until_s:
        stage.world.time.step(until_s)


def test_one_engine_empties_nodes_and_a_second_is_told_whose_they_are() -> None:
    """NVIDIA/gpu-operator 901, k8s-driver-manager 166: two parts that evict, each saying that the other one does."""
    stage = fleet()
    second: list[str] = []

    def try_as_well() -> None:
        with pytest.raises(HeldError) as refused:
            stage.apply("bob")
        second.append(refused.value.message)

    stage.at(45.0, try_as_well)
    assert set(stage.apply("ada").values()) == {"converged"}
    assert second == ["ada is at work"]


@pytest.mark.parametrize("away_s", [20.0, 45.0, 10 * MINUTE_S], ids=["seconds", "nearly a minute", "ten minutes"])
def test_nothing_stays_switched_off_when_the_api_server_was_away(away_s: float) -> None:
    """NVIDIA/gpu-operator 316: labels stayed paused-for-driver-upgrade, and with them every GPU of the node."""
    stage = fleet(3)
    stage.at(70.0, lambda: setattr(stage.world, "away_until_s", stage.world.time.now_s + away_s))
    stage.apply()
    wait(stage, 15 * MINUTE_S)
    stage.apply()

    for machine in stage.machines.values():
        assert (machine.driver, machine.is_cordoned, machine.is_released) == (NEW, False, False)


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.is_over and phase is not Phase.JOBS])
def test_whoever_comes_next_brings_a_forgotten_node_back_into_service(phase: Phase) -> None:
    """ROCm/gpu-operator PR 110: the operator ran on the node that it rebooted, and began again and again.

    Here the machine of the apply is lost in any phase; somebody else goes on, once its lease has run out.
    """
    stage = fleet(2)
    if phase is Phase.ROLLBACK:
        stage.machines["n1"].broken[Phase.SWAP] = "apt: broken"
    kill(stage, "n1", phase)

    with pytest.raises(HeldError):
        stage.apply("bob")
    wait(stage, DURATION_S + 1)
    stage.machines["n1"].broken.clear()
    stage.apply("bob")
    stage.apply("bob")

    for machine in stage.machines.values():
        assert (machine.driver, machine.verified) == (NEW, NEW)
        assert not machine.is_cordoned
        assert not machine.is_released
    assert stage.machines["n1"].attempts.get(Phase.SWAP, 0) <= 2, "it is no loop"
