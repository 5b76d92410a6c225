"""How many NVLinks two GPUs have in common. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.driver.topology.facts import Remote

if TYPE_CHECKING:
    from plugin.driver.topology.facts import GpuLinks


def _direct(gpu: GpuLinks, address: str) -> int | None:
    """Count the links that end at a GPU; None where the links could not be read."""
    if gpu.nvlinks is None:
        return None
    return sum(link.remote is Remote.GPU and link.address == address for link in gpu.nvlinks)


def _switched(gpu: GpuLinks) -> int:
    return sum(link.remote is Remote.SWITCH for link in gpu.nvlinks or ())


def is_same_fabric(one: GpuLinks, other: GpuLinks) -> bool:
    """Whether NVSwitches connect the two: a fabric that is cut into cliques connects nothing across them."""
    return one.fabric is None or other.fabric is None or one.fabric == other.fabric


def common_links(one: GpuLinks, one_address: str, other: GpuLinks, other_address: str) -> int:
    """Return the number of NVLinks between two GPUs, through switches or without.

    A link has two ends. Where both say something else (one end is down), the smaller number counts; where one of
    them could not be read, the other one's word does. Through switches everybody reaches everybody, with as many
    links as the one that has fewer.
    """
    said = [count for count in (_direct(one, other_address), _direct(other, one_address)) if count is not None]
    direct = min(said, default=0)
    return direct + (min(_switched(one), _switched(other)) if is_same_fabric(one, other) else 0)
