"""What containers were given lately of the memory of GPUs, and whether the kubelet says so too.

An amount that nobody was given is no allocation, whatever an annotation says. After a start of the daemon the kubelet
knows what was given before.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from plugin.base.errors import NodeDaemonError
from plugin.sharing.memory_limits.units import memory_of_units

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from plugin.kubelet.cdi_names import MemoryPart
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
    from plugin.sharing.memory_limits.units import UnitBytes

    Amounts = frozenset[tuple[str, int]]

_REMEMBERED = 1024
_ASK_S = 1.0


class MemoryLedger:
    """Hears of allocations and finds them again; `claimed` says what parts claims have of GPUs."""

    def __init__(
        self,
        list_assignments: Callable[[float], Awaitable[tuple[DeviceAssignment, ...]]],
        unit_bytes: UnitBytes,
        claimed: Callable[[], Iterable[MemoryPart]] = tuple,
    ) -> None:
        self._claimed = claimed
        self._list_assignments = list_assignments
        self._unit_bytes = unit_bytes
        self._known: OrderedDict[Amounts, None] = OrderedDict()

    def allocated(self, device_ids: Iterable[str]) -> None:
        """Hear what a container was given."""
        amounts = frozenset(memory_of_units(device_ids, self._unit_bytes).items())
        if amounts:
            self._known[amounts] = None
            self._known.move_to_end(amounts)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    async def find(self, memory: Mapping[str, int]) -> Mapping[str, int] | None:
        """Return an allocation that is this one; asks the kubelet about one that is not remembered."""
        wanted = frozenset(memory.items())
        if wanted and wanted <= _sums(self._claimed()):
            return dict(wanted)
        if wanted not in self._known:
            await self._ask_kubelet()
        return dict(wanted) if wanted in self._known else None

    async def _ask_kubelet(self) -> None:
        try:
            assignments = await self._list_assignments(_ASK_S)
        except NodeDaemonError:
            return  # whoever asked hears that nothing is known
        given: dict[tuple[PodContainer, str], list[str]] = {}
        for each in assignments:  # the kubelet tells what one container has in several parts
            given.setdefault((each.holder, each.resource), []).extend(each.device_ids)
        for device_ids in given.values():
            self.allocated(device_ids)


def _sums(parts: Iterable[MemoryPart]) -> Amounts:
    """Return what a container can have been given of each GPU by claims: a part, or several together."""
    sums: dict[str, set[int]] = {}
    for each in set(parts):
        of_device = sums.setdefault(each.uuid, {0})
        of_device |= {before + each.memory_bytes for before in of_device}
    return frozenset((uuid, size) for uuid, sizes in sums.items() for size in sizes)
