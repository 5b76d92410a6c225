"""Machines to choose on: what connects their GPUs, written as plainly as `nvidia-smi topo -m` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import Snapshot
from plugin.driver.topology.facts import GpuLinks, LinkFacts, NvLink, Remote
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plugin.devices.allocation.table import AllocationTable

PIX, PXB, PHB, NODE, SYS = 10, 20, 30, 40, 50


def links_of(index: int, nvlinks: Mapping[tuple[int, int], int], switched: int = 0) -> GpuLinks:
    """Return a GPU's links: a count for each pair, and `switched` ones to NVSwitches."""
    ends = [(other if index == one else one, count) for (one, other), count in nvlinks.items() if index in {one, other}]
    direct = [NvLink(Remote.GPU, gpu(end).pci_address) for end, count in ends for _ in range(count)]
    return GpuLinks(gpu(index).uuid, (*direct, *[NvLink(Remote.SWITCH, "0000:c0:00.0")] * switched))


def facts_of(
    count: int,
    level: Callable[[int, int], int],
    nvlinks: Mapping[tuple[int, int], int] | None = None,
    switched: int = 0,
) -> LinkFacts:
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    return LinkFacts(
        gpus=tuple(links_of(index, nvlinks or {}, switched) for index in range(count)),
        levels=tuple((gpu(a).uuid, gpu(b).uuid, level(a, b)) for a, b in pairs),
    )


def table_of(count: int, facts: LinkFacts) -> AllocationTable:
    return whole_table(next_inventory(Inventory(), Snapshot(VERSION, gpus(count), links=facts), DictTree()))


def ids(*indices: int) -> list[str]:
    return [gpu(index).uuid for index in indices]


def indices_of(chosen: Sequence[str]) -> list[int]:
    return sorted(int(uuid[-12:]) for uuid in chosen)


def _pairs_in_quads(a: int, b: int) -> int:
    if a // 4 != b // 4:
        return SYS
    return PIX if a // 2 == b // 2 else PHB


def _dgx1_pascal_pcie(a: int, b: int) -> int:
    if a // 4 != b // 4:
        return SYS
    return PIX if a % 2 == b % 2 else PHB


_CUBE_MESH = {
    **{(a + base, b + base): 1 for base in (0, 4) for a in range(4) for b in range(a + 1, 4)},
    **{(a, a + 4): 1 for a in range(4)},
}
_DOUBLE = ((0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5))

DGX1_PASCAL = facts_of(8, _dgx1_pascal_pcie, _CUBE_MESH)
DGX1_VOLTA = facts_of(8, _pairs_in_quads, {**_CUBE_MESH, **dict.fromkeys(_DOUBLE, 2)})
FOUR_RTX8000 = facts_of(4, lambda a, b: NODE if a // 2 == b // 2 else SYS, {(0, 3): 2, (1, 2): 2})
"""These three are the machines of go-gpuallocator's own tests."""


def _pcie_tree(a: int, b: int) -> int:
    """Pairs below a switch, four behind a host bridge, eight at a NUMA node."""
    if a // 2 == b // 2:
        return PIX
    if a // 4 == b // 4:
        return PHB
    return NODE if a // 8 == b // 8 else SYS


def hgx(count: int = 8) -> LinkFacts:
    """Return a machine whose GPUs are all connected by NVSwitches, 12 links each, and by PCIe as a tree."""
    return facts_of(count, _pcie_tree, switched=12)


def pcie_tree(count: int) -> LinkFacts:
    return facts_of(count, _pcie_tree)
