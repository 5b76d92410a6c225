"""What connects a GPU to the others and to the network, for `grapnel-node devices --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.driver.topology.machine import Topology


def connections_to_json(topology: Topology, uuid: str) -> dict[str, object]:
    """Return a GPU's pairs in the driver's order, and its nearest RDMA devices; nothing where they are not known."""
    position = topology.positions.get(uuid)
    if position is None:
        return {}
    pairs = zip(topology.ids, topology.pairs[position], strict=False)
    return {
        "peers": [
            {"uuid": other, "nvlinks": pair.nvlinks, "distance": pair.level.words, "score": pair.score}
            for other, pair in pairs
            if other != uuid
        ],
        "nics": [{"name": nic.name, "distance": nic.level.words} for nic in topology.neighbours(uuid)],
    }
