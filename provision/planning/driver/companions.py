"""Derives the companions of a driver from a node's hardware, where none are declared.

fabricmanager and nscq: GPUs behind NVSwitches run no CUDA program before the fabric manager has set them up. peermem:
GPUDirect RDMA over InfiniBand; the driver container loads it where there is such a device. IMEX spans several nodes,
and gdrcopy is asked for by programs: nothing on one node tells that they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.declaration.spec.model import Companion

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True)
class NeededCompanion:
    """A companion, and why the node gets it."""

    companion: Companion
    reason: str


def needed_companions(
    *, has_gpus: bool, nvswitches: int, has_infiniband: bool, offered: Collection[Companion]
) -> tuple[NeededCompanion, ...]:
    """Return what a node's hardware needs beside the driver.

    What only helps is left out where the source of packages does not have it (``offered``); what the GPUs do not work
    without is returned all the same, so that its absence is a problem of the plan.
    """
    if not has_gpus:
        return ()
    needed = []
    if Companion.PERSISTENCED in offered:
        needed.append(NeededCompanion(Companion.PERSISTENCED, "keeps the GPUs initialised while nobody uses them"))
    if nvswitches:
        switches = "an NVSwitch" if nvswitches == 1 else f"{nvswitches} NVSwitches"
        needed.append(NeededCompanion(Companion.FABRICMANAGER, f"the node has {switches}"))
        if Companion.NSCQ in offered:
            needed.append(NeededCompanion(Companion.NSCQ, f"the node has {switches}"))
    if has_infiniband and Companion.PEERMEM in offered:
        needed.append(NeededCompanion(Companion.PEERMEM, "the node has an InfiniBand device"))
    return tuple(needed)
