"""Who was given how much of a GPU's memory, who is kept to it, and who uses more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.devices.inventory import Device, Inventory
from plugin.driver.telemetry import GpuProcess, GroupMemory
from plugin.kubelet.pod_resources.attribution import OUTSIDE, DeviceAssignment, PodContainer
from plugin.publication.metrics.exposition import render
from plugin.publication.metrics.memory import (
    ContainerMemory,
    fair_memory,
    measure_containers,
    memory_families,
)
from plugin.sharing.memory_limits.units import memory_of_containers
from tests.plugin.fakes import VERSION, gpu, telemetry
from tests.plugin.metrics.reading import read_page

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
FIRST, SECOND = gpu(0).uuid, gpu(1).uuid
RESOURCE = "example.com/gpu-mem"
SMALL, LARGE = PodContainer("a", "small", "main"), PodContainer("a", "large", "main")
INVENTORY = Inventory(VERSION, (Device(gpu(0), "/dev/nvidia0"), Device(gpu(1), "/dev/nvidia1")))
ALLOCATED = {(SMALL, FIRST): GIB, (LARGE, FIRST): 4 * GIB}
# Process 1 is the small one's, 2 and 3 the large one's, 4 the host's.
OWNERS = {1: SMALL, 2: LARGE, 3: LARGE, 4: OUTSIDE}


def used(memory: Mapping[int, int | None], owners: Mapping[int, PodContainer] = OWNERS) -> ContainerMemory:
    processes = tuple(GpuProcess(pid, size, None) for pid, size in memory.items())
    return measure_containers(ALLOCATED, {}, (telemetry(0)._replace(processes=processes),), owners)


def test_units_and_parts_by_claims_are_memory_and_nothing_else_is() -> None:
    units = tuple(f"{FIRST}/{number}" for number in range(3))
    assignments = (
        DeviceAssignment(LARGE, RESOURCE, units[:2]),
        DeviceAssignment(LARGE, RESOURCE, (units[2], f"{SECOND}/0")),
        DeviceAssignment(SMALL, "nvidia.com/gpu", (SECOND, f"{SECOND}::1", f"{gpu(7).uuid}/1")),
        DeviceAssignment(SMALL, "claim part", (SECOND,), ((SECOND, 5 * GIB),)),
    )
    assert memory_of_containers(assignments, {FIRST: GIB, SECOND: GIB}.get) == {
        (LARGE, FIRST): 3 * GIB,
        (LARGE, SECOND): GIB,
        (SMALL, SECOND): 5 * GIB,
    }


def test_without_a_limit_it_is_the_sum_of_a_containers_processes() -> None:
    memory = used({1: 2 * GIB, 2: GIB, 3: GIB, 4: 7 * GIB})
    assert memory.used == {(SMALL, FIRST): 2 * GIB, (LARGE, FIRST): 2 * GIB}
    assert memory.limits == {}


@pytest.mark.parametrize(
    ("processes", "owners", "expected"),
    [
        pytest.param({}, {}, {(SMALL, FIRST): 0, (LARGE, FIRST): 0}, id="no process"),
        pytest.param({1: GIB, 9: GIB}, OWNERS, {(SMALL, FIRST): GIB}, id="a process of nobody knows whom"),
        pytest.param({1: None}, OWNERS, {(LARGE, FIRST): 0}, id="memory that the driver does not tell"),
    ],
)
def test_what_is_not_known_is_left_out(
    processes: dict[int, int | None], owners: dict[int, PodContainer], expected: dict[tuple[PodContainer, str], int]
) -> None:
    assert used(processes, owners).used == expected


def test_a_container_that_was_given_no_units_is_not_counted() -> None:
    stranger = PodContainer("a", "stranger", "main")
    assert (stranger, FIRST) not in used({1: GIB, 5: GIB}, {**OWNERS, 5: stranger}).used


def test_what_the_driver_counts_for_a_limit_comes_first() -> None:
    limited = {(SMALL, FIRST): GroupMemory(GIB, 900), (LARGE, SECOND): GroupMemory(None, 5)}
    processes = (GpuProcess(1, 100, None), GpuProcess(2, 200, None))
    memory = measure_containers(ALLOCATED, limited, (telemetry(0)._replace(processes=processes),), OWNERS)
    assert memory.used == {(SMALL, FIRST): 900, (LARGE, FIRST): 200, (LARGE, SECOND): 5}
    assert memory.limits == {(SMALL, FIRST): GIB}


def test_a_share_has_a_fair_part_and_no_promise() -> None:
    assignments = (
        DeviceAssignment(SMALL, "nvidia.com/gpu", (f"{FIRST}::0",)),
        DeviceAssignment(LARGE, "nvidia.com/gpu", (f"{FIRST}::1", f"{FIRST}::3")),
        DeviceAssignment(LARGE, "nvidia.com/gpu", (SECOND, f"{gpu(7).uuid}::0")),
    )
    whole = 128 * GIB
    of_the_machine = Device(replace(gpu(0), memory_bytes=None), "/dev/nvidia0", memory_bytes=whole)
    inventory = Inventory(VERSION, (of_the_machine, INVENTORY.devices[1]))
    fair = fair_memory(assignments, {FIRST: 4, gpu(7).uuid: 4}, inventory)
    assert fair == {(SMALL, FIRST): whole // 4, (LARGE, FIRST): whole // 2}
    processes = (GpuProcess(1, whole, None), GpuProcess(2, 200, None))
    memory = measure_containers({}, {}, (telemetry(0)._replace(processes=processes),), OWNERS, fair)
    assert memory.used == {(SMALL, FIRST): whole, (LARGE, FIRST): 200}
    assert memory.over == {(SMALL, FIRST): whole - whole // 4, (LARGE, FIRST): 0}


def test_what_is_beyond_the_units_is_told() -> None:
    memory = ContainerMemory({(SMALL, FIRST): GIB, (LARGE, FIRST): GIB}, {}, {(SMALL, FIRST): 3 * GIB})
    assert memory.over == {(SMALL, FIRST): 2 * GIB}


def test_it_is_on_the_page_by_container_and_gpu() -> None:
    only_pod = PodContainer("b", "p", "")
    memory = ContainerMemory(
        {(SMALL, FIRST): GIB, (only_pod, SECOND): 2 * GIB, (SMALL, gpu(7).uuid): 1},
        {(SMALL, FIRST): GIB},
        {(SMALL, FIRST): 5},
    )
    text = render(memory_families(memory, INVENTORY, "node-1"))
    page = read_page(text)
    of_small = {"gpu": "0", "UUID": FIRST, "Hostname": "node-1", "container": "main", "namespace": "a", "pod": "small"}
    of_pod = {"gpu": "1", "UUID": SECOND, "Hostname": "node-1", "namespace": "b", "pod": "p"}
    assert {name: [dict(labels) for labels in page.of(name)] for name in sorted(_names())} == {
        "grapnel_container_gpu_memory_allocated_bytes": [of_small, of_pod],
        "grapnel_container_gpu_memory_fair_bytes": [],
        "grapnel_container_gpu_memory_limit_bytes": [of_small],
        "grapnel_container_gpu_memory_over_bytes": [of_small],
        "grapnel_container_gpu_memory_used_bytes": [of_small],
    }
    assert gpu(7).uuid.encode() not in text


def _names() -> set[str]:
    return {f"grapnel_container_gpu_memory_{word}_bytes" for word in ("allocated", "fair", "limit", "over", "used")}
