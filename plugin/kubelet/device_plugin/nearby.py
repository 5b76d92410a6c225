"""Where the last GPUs were given away: a hint for the network cards that are asked for beside them.

The kubelet asks for each resource of a container by itself and names no pod. So the hint is the allocation of the last
moment, and whoever has used it once does not use it again; it is wrong where another pod came in between, and missing
where the kubelet asked for the card first. Not here: what the kubelet's topology manager does, which is reliable.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from plugin.devices.resources import Placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugin.kubelet.device_plugin.publisher import Publication

HINT_S = 2.0  # a kubelet asks for the devices of one container within milliseconds


class Nearby:
    """The NUMA nodes of the last allocation of GPUs. Used in the event loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes: frozenset[int] = frozenset()
        self._until = 0.0
        self._joined: set[str] = set()

    def given(self, publication: Publication, device_ids: Sequence[str]) -> None:
        """Hear what a container was given of a publication."""
        if publication.table.placement is Placement.NEAR:
            return
        wanted = set(device_ids)
        nodes = (offer.numa_node for offer in publication.offers if offer.device_id in wanted)
        self._nodes = frozenset(node for node in nodes if node is not None)
        self._until = self._clock() + HINT_S
        self._joined.clear()

    def units(self, publication: Publication) -> frozenset[str]:
        """Return the units on those NUMA nodes, for a resource that is placed by them; once for each resource."""
        table = publication.table
        if table.placement is not Placement.NEAR or table.resource in self._joined or self._clock() > self._until:
            return frozenset()
        self._joined.add(table.resource)
        return frozenset(offer.device_id for offer in publication.offers if offer.numa_node in self._nodes)
