"""Which units of shared devices a container should get: spread over devices, packed, or all on one. Pure.

How many have a device already follows from what is free: its units that are not. Equal devices are taken in the order
of the table, so that the same question has the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.resources import Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plugin.devices.allocation.table import Entry


@dataclass
class _Pool:
    """One device: its free units in order, how many of its units are taken, and how many of those by the container."""

    position: int
    free: list[str]
    taken: int = 0
    mine: int = 0

    @property
    def spread_rank(self) -> tuple[int, int, int]:
        """What orders devices where shares are spread: of equally taken ones, the container gets another one first."""
        return self.taken, self.mine, self.position


def device_of(entries: Mapping[str, Entry], unit_id: str) -> str:
    """Return the device of a unit; a unit that the table does not have is a device by itself."""
    entry = entries.get(unit_id)
    return unit_id if entry is None else entry.device.device_id


def choose_units(
    entries: Mapping[str, Entry], free: Sequence[str], required: Sequence[str], size: int, placement: Placement
) -> tuple[str, ...]:
    """Return `size` of the free units in the order in which they were chosen, the required ones first.

    `free` and `required` are in the order of the table; required ones are among the free.
    """
    pools = _pools(entries, free, required)
    chosen = list(required)
    if placement is Placement.ONE_DEVICE:
        return (*chosen, *_from_one(entries, pools, required, size - len(chosen)))
    is_packed = placement is Placement.PACKED
    for _ in range(size - len(chosen)):
        candidates = (pool for pool in pools.values() if pool.free)
        best = min(candidates, key=lambda pool: (-pool.taken, 0, pool.position) if is_packed else pool.spread_rank)
        chosen.append(best.free.pop(0))
        best.taken += 1
        best.mine += 1
    return tuple(chosen)


def _pools(entries: Mapping[str, Entry], free: Sequence[str], required: Iterable[str]) -> dict[str, _Pool]:
    required = set(required)
    open_ids = set(free) - required
    pools: dict[str, _Pool] = {}
    for unit_id in dict.fromkeys((*entries, *free)):
        device = device_of(entries, unit_id)
        pool = pools.setdefault(device, _Pool(len(pools), []))
        if unit_id in open_ids:
            pool.free.append(unit_id)
        else:
            pool.taken += 1
            pool.mine += unit_id in required
    return pools


def _from_one(
    entries: Mapping[str, Entry], pools: Mapping[str, _Pool], required: Sequence[str], count: int
) -> Iterable[str]:
    """Return units of the device that has the least free and enough; of several devices where no single one has enough.

    The least: so larger requests still find a device. Required units bind a container to their device.
    """
    bound = {device_of(entries, unit_id) for unit_id in required}
    fitting = [pool for device, pool in pools.items() if len(pool.free) >= count and bound <= {device}]
    if fitting:
        return min(fitting, key=lambda pool: (len(pool.free), pool.position)).free[:count]
    ordered = sorted(pools.items(), key=lambda item: (item[0] not in bound, -len(item[1].free), item[1].position))
    return [unit_id for _, pool in ordered for unit_id in pool.free][:count]
