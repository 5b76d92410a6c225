from __future__ import annotations

from plugin.cli.devices import connections_to_json
from plugin.driver.topology.facts import GpuLinks, LinkFacts, Nic, NvLink, Place, Remote
from plugin.driver.topology.machine import NO_TOPOLOGY, make_topology

PLACES = (
    Place("0000:11:00.0", 0, ("pci0000:10", "0000:10:01.0", "0000:11:00.0")),
    Place("0000:91:00.0", 1, ("pci0000:90", "0000:90:01.0", "0000:91:00.0")),
)
LINK = NvLink(Remote.GPU, PLACES[1].address)


def test_a_gpu_is_shown_with_its_peers_and_its_nearest_network() -> None:
    nics = (
        Nic("mlx5_0", Place("0000:12:00.0", 0, ("pci0000:10", "0000:10:02.0", "0000:12:00.0"))),
        Nic("mlx5_1", Place("0000:92:00.0", 1, ("pci0000:90", "0000:90:02.0", "0000:92:00.0"))),
    )
    topology = make_topology(["GPU-0", "GPU-1"], PLACES, LinkFacts((GpuLinks("GPU-0", (LINK, LINK)),)), nics)
    assert connections_to_json(topology, "GPU-0") == {
        "peers": [{"uuid": "GPU-1", "nvlinks": 2, "distance": "at different NUMA nodes", "score": 210}],
        "nics": [{"name": "mlx5_0", "distance": "at one host bridge"}],
    }


def test_a_gpu_that_the_topology_does_not_know_has_nothing_to_show() -> None:
    assert connections_to_json(NO_TOPOLOGY, "GPU-0") == {}
