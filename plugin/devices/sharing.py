"""Rules by which one GPU, or one MIG device, is offered as several units. Pure.

Ids: share number n of a device is `UUID::n`, as in NVIDIA's plugin, unit number n of its memory is `UUID/n`. Not here:
which devices there are (`inventory`), and what a resource consists of in the end (`resources`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHARE, MEMORY = "::", "/"  # between the id of a device and the number of a unit of it
SIZE_UNKNOWN = "the driver does not say how much memory it has"
_MIB = 2**20


class Strategy(Enum):
    """How a device is divided. The values are those of the label `gpu.sharing-strategy`."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MEMORY = "memory"  # grapnel's own: NVIDIA has no word for it


@dataclass(frozen=True)
class ShareRule:
    """Devices of `resource` are offered as `shown_as`, each several times.

    `chosen`: None is all of them, a number the first so many, else indices (`3`, `0:1` for a MIG device) and UUIDs.
    `unit_bytes` and `memory_bytes` count for `Strategy.MEMORY`, `replicas` for the others. `memory_bytes` is how much
    of a device is offered, and how much it has where nothing else says; 0: all. `refuses_several`: a container may have
    one unit alone.
    """

    strategy: Strategy
    resource: str
    shown_as: str
    replicas: int = 0
    unit_bytes: int = 0
    memory_bytes: int = 0
    chosen: int | tuple[str, ...] | None = None
    refuses_several: bool = False
    origin: str = field(default="", compare=False)

    def takes(self, names: Sequence[str], position: int) -> bool:
        """Whether it is about the device of these names (UUID, index) that is number `position` of the resource."""
        if self.chosen is None:
            return True
        if isinstance(self.chosen, int):
            return position < self.chosen
        return any(name in self.chosen for name in names)

    def count(self, memory_bytes: int | None) -> int:
        """Return how many units a device of this memory has. None: it is not known how much that is."""
        if self.strategy is Strategy.MEMORY:
            return min((each for each in (memory_bytes, self.memory_bytes) if each), default=0) // self.unit_bytes
        return self.replicas

    def why_none(self, memory_bytes: int | None) -> str:
        """Return why a device of this memory has no unit."""
        if memory_bytes is None and not self.memory_bytes:
            return f"{SIZE_UNKNOWN}, so that {self.describe()} cannot be counted: write memoryMiB beside unitMiB"
        return f"{self.describe()} do not fit into its memory"

    def unit_id(self, device_id: str, number: int) -> str:
        """Return the id of a unit."""
        return f"{device_id}{MEMORY if self.strategy is Strategy.MEMORY else SHARE}{number}"

    def id_lengths(self, device_id: str, count: int) -> Iterator[tuple[int, int]]:
        """Yield how long the ids of so many units are, and how many are as long."""
        digits, below, base = 1, 0, len(self.unit_id(device_id, 0)) - 1
        while below < count:
            end = min(count, 10**digits)
            yield base + digits, end - below
            digits, below = digits + 1, end

    def describe(self) -> str:
        """Return what it does, for people."""
        if self.strategy is Strategy.MEMORY:
            return f"memory units of {self.unit_bytes // _MIB} MiB"
        return f"{self.replicas} shares by {self.strategy.value}"


def device_of(unit_id: str) -> str:
    """Return the GPU or MIG device of a unit's id; the id itself where it is no unit of anything.

    Old MIG devices have ids such as MIG-GPU-<uuid>/1/0, which are no memory units.
    """
    device_id = unit_id.partition(SHARE)[0]
    return device_id if device_id.startswith("MIG-") else device_id.partition(MEMORY)[0]


def kind_of(unit_id: str) -> str:
    """Return what is between a device and the number in the id of a unit of it, "" for a whole device."""
    device_id = device_of(unit_id)
    return "" if device_id == unit_id else SHARE if unit_id.startswith(SHARE, len(device_id)) else MEMORY
