"""What a container uses of what it was given; what is not certain counts for nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.driver.telemetry import GpuInstance, GpuTelemetry
from plugin.sharing.memory_limits.units import memory_of_containers
from plugin.sharing.overuse.measure import Owner, measure, pids_of
from tests.plugin.overuse.shares import FIRST, GIB, SECOND, container, given, owner, working

if TYPE_CHECKING:
    from collections.abc import Mapping

ALLOWED = memory_of_containers((given("a", 2), given("b", 4)), {FIRST: GIB, SECOND: GIB}.get)
A, B = owner("a", 1), owner("b", 2)


def measured(memory: Mapping[int, int | None], owners: Mapping[int, Owner], *limited: str) -> dict[str, int]:
    """Return bytes by pod."""
    found = measure(ALLOWED, (working(memory),), owners, limited)
    return {each.owner.name.pod: each.used_bytes for each in found}


def test_units_of_a_container_are_added_up() -> None:
    allowed = memory_of_containers(
        (given("a", 2), given("a", 1), given("a", 3, SECOND)), {FIRST: GIB, SECOND: 2 * GIB}.get
    )
    assert sorted(allowed.values()) == [3 * GIB, 6 * GIB]


@pytest.mark.parametrize(
    ("memory", "owners", "expected"),
    [
        pytest.param({1: GIB, 2: 2 * GIB}, {1: A, 2: A}, {"a": 3 * GIB}, id="the sum of its processes"),
        pytest.param({1: GIB, 2: 5 * GIB}, {1: A, 2: B}, {"a": GIB, "b": 5 * GIB}, id="each container for itself"),
        pytest.param({1: GIB, 2: 9 * GIB}, {1: A}, {"a": GIB}, id="a process of an unknown container"),
        pytest.param({1: GIB, 2: None}, {1: A, 2: A}, {"a": GIB}, id="memory that the driver does not tell"),
        pytest.param({1: 9 * GIB}, {1: owner("c", 3)}, {}, id="a container without units"),
        pytest.param({1: 9 * GIB, 2: GIB}, {1: A, 2: owner("a", 9)}, {}, id="two pods of one name at a time"),
        pytest.param(
            {1: 2 * GIB, 2: 2 * GIB},
            {1: A, 2: owner("a", 7, of_pod=1)},
            {"a": 2 * GIB},
            id="a container and the one before it: each by itself",
        ),
        pytest.param({}, {}, {}, id="nobody works"),
    ],
)
def test_what_is_not_certain_counts_for_nobody(
    memory: dict[int, int | None], owners: dict[int, Owner], expected: dict[str, int]
) -> None:
    assert measured(memory, owners) == expected


def test_who_has_a_limit_in_the_driver_is_left_to_it() -> None:
    assert measured({1: 9 * GIB, 2: 9 * GIB}, {1: A, 2: B}, container(1)) == {"b": 9 * GIB}


def test_a_mig_device_is_measured_where_its_memory_is_its_own() -> None:
    alone = GpuInstance(1, "1g.10gb", ("MIG-1",), working({1: 3 * GIB}))
    together = GpuInstance(2, "2g.20gb", ("MIG-2", "MIG-3"), working({2: 3 * GIB}))
    gpu = GpuTelemetry(FIRST, instances=(alone, together), asked_at_s=7.0)
    allowed = {(A.name, "MIG-1"): GIB, (A.name, "MIG-2"): GIB, (A.name, FIRST): GIB}
    (found,) = measure(allowed, (gpu,), {1: A, 2: A}, ())
    assert (found.uuid, found.is_over) == ("MIG-1", True)
    assert pids_of((gpu,)) == {1: 7.0}


def test_a_process_on_two_gpus_is_asked_for_by_the_first_time_it_was_seen() -> None:
    later = working({1: GIB}, SECOND)._replace(asked_at_s=60.0)
    assert pids_of((later, working({1: GIB, 2: GIB}))) == {1: 50.0, 2: 50.0}
