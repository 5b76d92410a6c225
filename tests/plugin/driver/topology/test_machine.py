from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import Snapshot
from plugin.driver.topology.facts import GpuLinks, LinkFacts, Nic, NvLink, Place, Remote
from plugin.driver.topology.machine import Level, NearNic, Pair, Topology, make_topology
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

IDS = ("GPU-0", "GPU-1", "GPU-2")
PLACES = (Place("0000:10:00.0", 0), Place("0000:11:00.0", 0), Place("0000:12:00.0", 1))


def topology(facts: LinkFacts) -> Topology:
    return make_topology(IDS, PLACES, facts)


@pytest.mark.parametrize(
    ("pair", "score", "words"),
    [
        pytest.param(Pair(4, Level.SWITCH), 450, "4 NVLinks, below one PCIe switch", id="links and a switch"),
        pytest.param(Pair(1, Level.MACHINE), 110, "1 NVLink, at different NUMA nodes", id="one link across nodes"),
        pytest.param(Pair(0, Level.BOARD), 60, "on one board", id="a board with two GPUs"),
        pytest.param(Pair(), 0, "at an unknown distance", id="nothing is known"),
    ],
)
def test_a_pair_has_a_score_and_words(pair: Pair, score: int, words: str) -> None:
    assert (pair.score, pair.describe()) == (score, words)


def test_nvml_knows_levels_better_than_sysfs() -> None:
    facts = LinkFacts(tuple(GpuLinks(uuid) for uuid in IDS), (("GPU-1", "GPU-0", 10), ("GPU-0", "GPU-2", 99)))
    assert topology(facts).scores == ((0, 50, 10), (50, 0, 10), (10, 10, 0))


def test_links_are_found_from_either_end() -> None:
    to_second = NvLink(Remote.GPU, PLACES[1].address)
    facts = LinkFacts((GpuLinks("GPU-0", (to_second, to_second)),))
    found = topology(facts)
    assert [found.pairs[0][1].nvlinks, found.pairs[1][0].nvlinks] == [2, 2]
    assert found.pairs[0][1] == Pair(2, Level.NUMA_NODE)


def test_rdma_devices_are_named_nearest_first() -> None:
    path = ("pci0000:10", "0000:10:01.0", "0000:11:00.0")
    near = Place("0000:14:00.0", 0, (*path, "0000:12:01.0", "0000:14:00.0"))
    far = Place("0000:80:00.0", 1, ("pci0000:80", "0000:80:01.0", "0000:81:00.0"))
    gpu_place = Place("0000:13:00.0", 0, (*path, "0000:12:00.0", "0000:13:00.0"))
    nics = (Nic("mlx5_1", far), Nic("mlx5_2", near), Nic("mlx5_0", near))
    found = make_topology(["GPU-0"], [gpu_place], LinkFacts(), nics)
    assert found.nics == (
        (NearNic("mlx5_0", Level.SWITCH), NearNic("mlx5_2", Level.SWITCH), NearNic("mlx5_1", Level.MACHINE)),
    )
    assert [nic.name for nic in found.neighbours("GPU-0")] == ["mlx5_0", "mlx5_2"]
    assert found.neighbours("GPU-unknown") == ()


class CountingTree(DictTree):
    """Counts the walks through sysfs."""

    walks = 0

    def place(self, pci_address: str) -> Place:
        self.walks += 1
        return super().place(pci_address)


def test_the_inventory_walks_once_for_the_same_gpus_and_links() -> None:
    tree, snapshot = CountingTree(), Snapshot(VERSION, gpus(4))
    inventory = next_inventory(Inventory(), snapshot, tree)
    assert tree.walks == 4
    again = next_inventory(inventory, replace(snapshot, cuda_version="12.4"), tree)
    assert again.topology is inventory.topology
    assert tree.walks == 4


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(Snapshot(VERSION, gpus(3)), id="a GPU has gone"),
        pytest.param(Snapshot(VERSION, gpus(5)), id="a GPU has come"),
        pytest.param(
            Snapshot(VERSION, gpus(4), links=LinkFacts((GpuLinks(gpu(0).uuid, None),))), id="other links are seen"
        ),
    ],
)
def test_the_inventory_walks_again_after_a_change(snapshot: Snapshot) -> None:
    tree = CountingTree()
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(4)), tree)
    changed = next_inventory(inventory, snapshot, tree)
    assert changed.topology.ids == tuple(one.uuid for one in snapshot.gpus)
    assert tree.walks == 4 + len(snapshot.gpus)
