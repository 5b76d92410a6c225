from __future__ import annotations

import pytest

from plugin.devices.allocation.table import AllocationTable
from plugin.devices.resources import Offer, Placement
from plugin.kubelet.device_plugin.nearby import HINT_S, Nearby
from plugin.kubelet.device_plugin.publisher import Publication

GPUS = Publication(
    (
        Offer("GPU-0", is_healthy=True, numa_node=0),
        Offer("GPU-1", is_healthy=True, numa_node=1),
        Offer("GPU-2", is_healthy=True, numa_node=None),
    ),
    AllocationTable((), {}, resource="nvidia.com/gpu"),
)


def cards(resource: str = "example.com/card") -> Publication:
    offers = tuple(Offer(f"card-{n}", is_healthy=True, numa_node=n // 2) for n in range(4))
    return Publication(offers, AllocationTable((), {}, resource=resource, placement=Placement.NEAR))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def nearby(clock: Clock) -> Nearby:
    return Nearby(clock)


@pytest.mark.parametrize(
    ("given", "near"),
    [
        pytest.param(["GPU-0"], {"card-0", "card-1"}, id="a gpu"),
        pytest.param(["GPU-1"], {"card-2", "card-3"}, id="another one"),
        pytest.param(["GPU-0", "GPU-1"], {"card-0", "card-1", "card-2", "card-3"}, id="gpus of two nodes"),
        pytest.param(["GPU-2"], set(), id="a gpu that is nowhere"),
        pytest.param([], set(), id="nothing"),
    ],
)
def test_cards_on_the_numa_nodes_of_the_last_gpus_are_near(nearby: Nearby, given: list[str], near: set[str]) -> None:
    nearby.given(GPUS, given)
    assert nearby.units(cards()) == near


def test_nothing_is_near_before_any_gpu_was_given_away(nearby: Nearby) -> None:
    assert nearby.units(cards()) == frozenset()


def test_a_hint_counts_once_for_each_resource_until_the_next_gpu(nearby: Nearby) -> None:
    nearby.given(GPUS, ["GPU-0"])
    assert nearby.units(cards())
    assert nearby.units(cards()) == frozenset()
    assert nearby.units(cards("example.com/fpga"))
    nearby.given(GPUS, ["GPU-1"])
    assert nearby.units(cards()) == {"card-2", "card-3"}


def test_a_hint_is_forgotten_after_a_moment(nearby: Nearby, clock: Clock) -> None:
    nearby.given(GPUS, ["GPU-0"])
    clock.now += HINT_S + 0.1
    assert nearby.units(cards()) == frozenset()


def test_a_card_is_no_hint_for_others(nearby: Nearby) -> None:
    nearby.given(cards(), ["card-3"])
    assert nearby.units(cards("example.com/fpga")) == frozenset()


def test_gpus_are_chosen_by_their_links_and_not_by_hints(nearby: Nearby) -> None:
    nearby.given(GPUS, ["GPU-0"])
    assert nearby.units(GPUS) == frozenset()
    assert nearby.units(cards())  # and their question does not use the hint up
