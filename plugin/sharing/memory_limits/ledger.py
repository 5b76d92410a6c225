"""What containers were given lately of the memory of GPUs, and whether the kubelet says so too.

An amount that no container was given is no allocation, whatever an annotation says. After a start of the daemon the
kubelet knows what was given before.
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
_MIB = 1 << 20  # units are so many of them
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
        if wanted and self._is_claimed(memory):
            return dict(wanted)
        if wanted not in self._known:
            await self._ask_kubelet()
        return dict(wanted) if wanted in self._known else None

    def _is_claimed(self, memory: Mapping[str, int]) -> bool:
        """Whether claims have it, of each GPU by itself: the hook asks for one at a time."""
        parts = set(self._claimed())
        return all(
            _is_sum(size, [each.memory_bytes for each in parts if each.uuid == uuid]) for uuid, size in memory.items()
        )

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


def _is_sum(wanted: int, sizes: Iterable[int]) -> bool:
    """Whether a container can have been given so much by claims: a part, or several together. All are whole MiB.

    Bit n of a number says whether n MiB are a sum: of small units there are as many sums as a GPU has MiB.
    """
    small = [size // _MIB for size in sizes if size <= wanted]
    if wanted % _MIB or wanted // _MIB > sum(small):
        return False
    sums = 1
    for size in small:
        sums |= sums << size
    return bool(sums >> wanted // _MIB & 1)
