"""How far apart two PCI devices are. Pure.

The levels are NVML's (nvmlGpuTopologyLevel_t), which `nvidia-smi topo -m` shows as PIX, PXB, PHB, NODE and SYS.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.driver.topology.facts import Place

_SWITCH_PORT_AND_DEVICE = 2


class Level(IntEnum):
    """The nearest thing that two devices share; nearer is smaller. UNKNOWN is ours, the rest NVML's numbers."""

    BOARD = 0
    SWITCH = 10
    SWITCHES = 20
    HOST_BRIDGE = 30
    NUMA_NODE = 40
    MACHINE = 50
    UNKNOWN = 99

    @property
    def words(self) -> str:
        """The level for people."""
        return _WORDS[self]


_WORDS = {
    Level.BOARD: "on one board",
    Level.SWITCH: "below one PCIe switch",
    Level.SWITCHES: "below several PCIe switches",
    Level.HOST_BRIDGE: "at one host bridge",
    Level.NUMA_NODE: "at one NUMA node",
    Level.MACHINE: "at different NUMA nodes",
    Level.UNKNOWN: "at an unknown distance",
}


def level_of_number(number: int) -> Level:
    """Return the level that NVML means; UNKNOWN for a number that this program does not know."""
    try:
        return Level(number)
    except ValueError:
        return Level.UNKNOWN


def level_of_places(one: Place, other: Place) -> Level:
    """Return the level that sysfs shows: by the bridges above both, else by NUMA nodes, else UNKNOWN.

    A PCIe switch is an upstream port with downstream ports below it: two devices of the same switch differ only in
    their downstream ports.
    """
    shared = 0
    for mine, theirs in zip(one.path, other.path, strict=False):
        if mine != theirs:
            break
        shared += 1
    if shared > 1:
        below = max(len(one.path), len(other.path)) - shared
        return Level.SWITCH if below <= _SWITCH_PORT_AND_DEVICE else Level.SWITCHES
    if shared:
        return Level.HOST_BRIDGE
    if one.numa_node is None or other.numa_node is None:
        return Level.UNKNOWN
    return Level.NUMA_NODE if one.numa_node == other.numa_node else Level.MACHINE
