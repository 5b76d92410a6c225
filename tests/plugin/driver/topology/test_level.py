from __future__ import annotations

import pytest

from plugin.driver.topology.facts import Place
from plugin.driver.topology.machine import Level, level_of_number, level_of_places

ROOT = "pci0000:00"
PORT, UP, DOWN_A, DOWN_B = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"


def place(*path: str, numa_node: int | None = None) -> Place:
    return Place(path[-1] if path else "0000:99:00.0", numa_node, path)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(
            place(ROOT, PORT, UP, DOWN_A, "0000:03:00.0"),
            place(ROOT, PORT, UP, DOWN_B, "0000:04:00.0"),
            Level.SWITCH,
            id="two ports of one switch",
        ),
        pytest.param(
            place(ROOT, PORT, UP, DOWN_A, "0000:03:00.0"),
            place(ROOT, PORT, UP, DOWN_B, "0000:04:00.0", "0000:05:00.0", "0000:06:00.0"),
            Level.SWITCHES,
            id="one of them below a second switch",
        ),
        pytest.param(
            place(ROOT, PORT, "0000:01:00.0"),
            place(ROOT, "0000:00:02.0", "0000:02:00.0"),
            Level.HOST_BRIDGE,
            id="two root ports of one host bridge",
        ),
        pytest.param(
            place(ROOT, PORT, "0000:01:00.0", numa_node=0),
            place("pci0000:40", "0000:40:01.0", "0000:41:00.0", numa_node=0),
            Level.NUMA_NODE,
            id="two host bridges of one NUMA node",
        ),
        pytest.param(
            place(ROOT, PORT, "0000:01:00.0", numa_node=0),
            place("pci0000:80", "0000:80:01.0", "0000:81:00.0", numa_node=1),
            Level.MACHINE,
            id="two NUMA nodes",
        ),
        pytest.param(place(numa_node=1), place(numa_node=1), Level.NUMA_NODE, id="NUMA nodes alone are known"),
        pytest.param(place(numa_node=1), place(), Level.UNKNOWN, id="the NUMA node of one is not known"),
        pytest.param(place(), place(), Level.UNKNOWN, id="nothing is known"),
    ],
)
def test_level_from_sysfs(one: Place, other: Place, expected: Level) -> None:
    assert level_of_places(one, other) is expected
    assert level_of_places(other, one) is expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(0, Level.BOARD, id="internal"),
        pytest.param(10, Level.SWITCH, id="single"),
        pytest.param(50, Level.MACHINE, id="system"),
        pytest.param(35, Level.UNKNOWN, id="a level of a later driver"),
    ],
)
def test_level_from_nvml(number: int, expected: Level) -> None:
    assert level_of_number(number) is expected
