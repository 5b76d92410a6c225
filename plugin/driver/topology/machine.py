"""The topology of a node: taken when the inventory changes, and only looked up afterwards. Pure.

Pairs score as in NVIDIA's go-gpuallocator: 100 for each NVLink, and 10 (other NUMA node) to 60 (same board) by PCIe.
Unlike there, links through an NVSwitch count, and what cannot be read costs its own pairs their points, no others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from plugin.driver.topology.facts import NO_LINKS, GpuLinks, LinkFacts, Nic, Place, Remote
from plugin.driver.topology.hierarchy import Hierarchy, find_hierarchy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NVLINK_POINTS = 100
# How far apart two PCI devices are. The levels are NVML's (nvmlGpuTopologyLevel_t), which `nvidia-smi topo -m` shows
# as PIX, PXB, PHB, NODE and SYS.

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


LEVEL_POINTS = {
    Level.BOARD: 60,
    Level.SWITCH: 50,
    Level.SWITCHES: 40,
    Level.HOST_BRIDGE: 30,
    Level.NUMA_NODE: 20,
    Level.MACHINE: 10,
    Level.UNKNOWN: 0,
}


@dataclass(frozen=True)
class Pair:
    """What connects two GPUs."""

    nvlinks: int = 0
    level: Level = Level.UNKNOWN

    @property
    def score(self) -> int:
        """How well: more is better."""
        return NVLINK_POINTS * self.nvlinks + LEVEL_POINTS[self.level]

    def describe(self) -> str:
        """Return it for people: `4 NVLinks, below one PCIe switch`."""
        links = f"{self.nvlinks} NVLink{'s' if self.nvlinks > 1 else ''}, " if self.nvlinks else ""
        return links + self.level.words


@dataclass(frozen=True)
class NearNic:
    """An RDMA device as seen from one GPU."""

    name: str
    level: Level


@dataclass(frozen=True)
class Topology:
    """The GPUs in the driver's order, and what connects them: `pairs[a][b]`, `scores[a][b]`, a and b positions.

    `nics` are each GPU's RDMA devices, nearest first. `hierarchy` is None where the scores do not form one.
    """

    ids: tuple[str, ...] = ()
    pairs: tuple[tuple[Pair, ...], ...] = ()
    scores: tuple[tuple[int, ...], ...] = ()
    hierarchy: Hierarchy | None = None
    nics: tuple[tuple[NearNic, ...], ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    facts: LinkFacts = NO_LINKS
    places: tuple[Place, ...] = ()

    def is_of(self, ids: Sequence[str], facts: LinkFacts) -> bool:
        """Whether this topology was made of these GPUs and facts already."""
        return self.ids == tuple(ids) and self.facts == facts

    def neighbours(self, device_id: str) -> tuple[NearNic, ...]:
        """Return the RDMA devices that are nearest to a GPU: all of the nearest level."""
        position = self.positions.get(device_id)
        near = self.nics[position] if position is not None else ()
        return tuple(nic for nic in near if nic.level is near[0].level)


NO_TOPOLOGY = Topology()


def make_topology(ids: Sequence[str], places: Sequence[Place], facts: LinkFacts, nics: Sequence[Nic] = ()) -> Topology:
    """Return the topology of these GPUs; `places` in the order of `ids`. Facts may lack any of them."""
    links = {gpu.uuid: gpu for gpu in facts.gpus}
    of_gpus = [links.get(uuid, GpuLinks(uuid, None)) for uuid in ids]
    levels = {frozenset((one, other)): level_of_number(number) for one, other, number in facts.levels}

    def pair(a: int, b: int) -> Pair:
        if a == b:
            return Pair()
        level = levels.get(frozenset((ids[a], ids[b])), Level.UNKNOWN)
        if level is Level.UNKNOWN:
            level = level_of_places(places[a], places[b])
        return Pair(common_links(of_gpus[a], places[a].address, of_gpus[b], places[b].address), level)

    count = len(ids)
    upper = {(a, b): pair(a, b) for a in range(count) for b in range(a, count)}
    pairs = tuple(tuple(upper[min(a, b), max(a, b)] for b in range(count)) for a in range(count))
    scores = tuple(tuple(0 if a == b else one.score for b, one in enumerate(row)) for a, row in enumerate(pairs))
    return Topology(
        ids=tuple(ids),
        pairs=pairs,
        scores=scores,
        hierarchy=find_hierarchy(scores),
        nics=tuple(_near(place, nics) for place in places),
        positions={uuid: position for position, uuid in enumerate(ids)},
        facts=facts,
        places=tuple(places),
    )


def _near(place: Place, nics: Sequence[Nic]) -> tuple[NearNic, ...]:
    found = (NearNic(nic.name, level_of_places(place, nic.place)) for nic in nics)
    return tuple(sorted(found, key=lambda nic: (nic.level, nic.name)))


def _direct(gpu: GpuLinks, address: str) -> int | None:
    """Count the links that end at a GPU; None where the links could not be read."""
    if gpu.nvlinks is None:
        return None
    return sum(link.remote is Remote.GPU and link.address == address for link in gpu.nvlinks)


def _switched(gpu: GpuLinks) -> int:
    return sum(link.remote is Remote.SWITCH for link in gpu.nvlinks or ())


def is_same_fabric(one: GpuLinks, other: GpuLinks) -> bool:
    """Whether NVSwitches connect the two: a fabric that is cut into cliques connects nothing across them."""
    return one.fabric is None or other.fabric is None or one.fabric == other.fabric


def common_links(one: GpuLinks, one_address: str, other: GpuLinks, other_address: str) -> int:
    """Return the number of NVLinks between two GPUs, through switches or without.

    A link has two ends. Where both say something else (one end is down), the smaller number counts; where one of
    them could not be read, the other one's word does. Through switches everybody reaches everybody, with as many
    links as the one that has fewer.
    """
    said = [count for count in (_direct(one, other_address), _direct(other, one_address)) if count is not None]
    direct = min(said, default=0)
    return direct + (min(_switched(one), _switched(other)) if is_same_fabric(one, other) else 0)
