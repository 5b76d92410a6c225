"""Which node when: what people ask for who are afraid to break production."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.declaration.spec.model import Blackout, Wave, Window
from provision.rollout.model import Phase
from tests.provision.rollout.situations.fleets import NEW, OLD, Fleet, fleet

if TYPE_CHECKING:
    from provision.rollout.simulate.machine import Machine
    from provision.rollout.simulate.scenario import Scenario


def begun(stage: Fleet) -> list[str]:
    return [node for node, phase in stage.way if phase is Phase.CORDON]


def test_nodes_are_upgraded_one_after_the_other_in_the_order_that_is_declared() -> None:
    """NVIDIA/gpu-operator 393: node by node in a specific order was not possible."""
    stage = fleet(4)
    waves = (*(Wave(hosts=(name,)) for name in ("n3", "n1", "n4")), Wave())

    assert set(stage.apply(waves=waves).values()) == {"converged"}
    assert begun(stage) == ["n3", "n1", "n4", "n2"]


def test_a_fleet_is_upgraded_without_a_reset_and_all_but_one_node_serve_meanwhile() -> None:
    """NVIDIA/deepops 1308, 1016: whoever ran a cluster was told to taint nodes and run a playbook on each by hand."""
    stage = fleet(5)
    out: list[int] = []

    def count(_machine: Machine, _phase: Phase) -> None:
        out.append(sum(machine.is_cordoned or machine.is_released for machine in stage.machines.values()))

    stage.on_phase = count
    assert set(stage.apply().values()) == {"converged"}
    assert max(out) == 1
    assert {machine.driver for machine in stage.machines.values()} == {NEW}


def test_the_way_down_is_the_way_up() -> None:
    """NVIDIA/deepops 1017: whether a downgrade of the driver is considered as well."""
    stage = fleet(3)
    stage.apply()
    down = Fleet(replace_target(stage, OLD), stage.world)

    assert set(down.apply().values()) == {"converged"}
    assert {machine.driver for machine in stage.machines.values()} == {OLD}
    assert {machine.verified for machine in stage.machines.values()} == {OLD}


def replace_target(stage: Fleet, target: str) -> Scenario:
    return replace(stage.scenario, target=target)


def test_no_node_begins_outside_of_the_window_and_what_has_begun_is_finished() -> None:
    """Nobody's operator knows windows and blackouts; pausing NVIDIA's forgets what every node was at."""
    stage = fleet(3)
    windows = tuple(Window(start=f"{hour}:00", end=f"{hour}:35", time_zone="UTC") for hour in (12, 14, 16))
    launch = Blackout(first="2026-05-04T13:00", last="2026-05-04T15:00", time_zone="UTC", reason="a launch")
    begins: list[str] = []
    stage.on_phase = lambda _machine, phase: (
        begins.append(f"{stage.world.time():%H:%M}") if phase is Phase.CORDON else None
    )

    assert set(stage.apply(windows=windows, blackouts=(launch,), node_minutes=30).values()) == {"converged"}
    assert {begin[:2] for begin in begins} == {"12", "16"}, "the first window is too short for all, the next one closed"
    assert all("00" <= begin[3:] <= "05" for begin in begins)
