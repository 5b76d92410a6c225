"""Which of the free devices a container should get. Pure.

Deliberately simple: what must be included, then the lowest index. It does not look at NVLink, PCIe or
NUMA; the kubelet's topology manager filters by NUMA node before it asks. Use of the links between GPUs
belongs here once the inventory knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.allocation import show_id
from plugin.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.allocation import AllocationTable


def prefer(table: AllocationTable, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
    """Return `size` devices of the available ones, the same ones for the same question.

    Ids that the table does not have come last: the kubelet's list may be a moment older than ours, and
    one GPU that has gone must not fail every pod on the node.
    """
    free = set(available)
    required = dict.fromkeys(must_include)
    for device_id in required:
        if device_id not in free:
            raise InvalidRequest(f"device {show_id(device_id)} must be included but is not available")
    if not len(required) <= size <= len(free):
        raise InvalidRequest(
            f"cannot choose {size} devices from {len(free)} available ones with {len(required)} required"
        )
    rank = {device_id: position for position, device_id in enumerate(table.entries)}

    def order(device_id: str) -> tuple[bool, int, str]:
        return device_id not in required, rank.get(device_id, len(rank)), device_id

    return tuple(sorted(free, key=order)[:size])
