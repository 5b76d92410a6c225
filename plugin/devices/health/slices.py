"""MIG devices have a health of their own: an error that the driver blames on one is no fault of its neighbours. Pure.

What the driver blames on no process, and what readings show, is the whole GPU's. A MIG device is idle when no process
works on it, whichever work beside it; it is reset with its GPU, and what is found of it is over when its instance is
destroyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.health.model import GpuInput
from plugin.driver.reading import Counters, Reading

if TYPE_CHECKING:
    from plugin.devices.health.model import HealthInput, NodeHealth, SliceInput
    from plugin.driver.reading import XidEvent

_PREFIX = "MIG-"
DESTROYED = "its instance was destroyed"
# Errors of memory: they show in the counters of the whole GPU as well (NVIDIA's XID catalogue).
MEMORY_XIDS = frozenset({48, 63, 64, 92, 94, 95, 171, 172})


def is_slice(uuid: str) -> bool:
    """Whether it is the UUID of a MIG device."""
    return uuid.startswith(_PREFIX)


def blamed(event: XidEvent, look: HealthInput) -> tuple[str, ...]:
    """Return the MIG devices that an event of a GPU is about, none where it is about the GPU."""
    if event.gpu_instance is None:
        return ()
    return tuple(
        each.uuid
        for each in look.slices
        if (each.gpu, each.gpu_instance) == (event.device, event.gpu_instance)
        and event.compute_instance in (None, each.compute_instance)
    )


def has_blamed_memory(uuid: str, look: HealthInput) -> bool:
    """Whether the driver blames an error of this GPU's memory on MIG devices: it is counted for the GPU, too."""
    return any(event.device == uuid and event.xid in MEMORY_XIDS and blamed(event, look) for event in look.events)


def slice_input(each: SliceInput, look: HealthInput) -> GpuInput:
    """Return the look of a MIG device, as far as it differs from that of its GPU."""
    whole = next((gpu for gpu in look.gpus if gpu.uuid == each.gpu), None)
    if whole is None or whole.reading is None:
        return GpuInput(each.uuid)
    processes = dict(whole.reading.slices).get(each.uuid)
    energy = Counters(energy_mj=whole.reading.counters.energy_mj)
    return GpuInput(each.uuid, Reading(counters=energy, processes=processes))


def destroyed(state: NodeHealth, look: HealthInput) -> tuple[str, ...]:
    """Return the MIG devices that are not there any more, once every GPU says what it has."""
    if not look.gpus or any(gpu.absent for gpu in look.gpus):
        return ()
    there = {each.uuid for each in look.slices}
    return tuple(uuid for uuid in state.gpus if is_slice(uuid) and uuid not in there)
