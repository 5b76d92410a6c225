"""Units of a device's memory by their ids, `UUID/NUMBER`, and their sum for each device. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.driver.uuid import is_gpu_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer

    UnitBytes = Callable[[str], int | None]  # the size of a device's units; None: it is not offered in such

_SEPARATOR = "/"
_GPU, _MIG = "GPU-", "MIG-"


def is_device_uuid(text: str) -> bool:
    """Whether it is the UUID of a GPU or of a MIG device."""
    return is_gpu_uuid(text) or (text.startswith(_MIG) and is_gpu_uuid(_GPU + text[len(_MIG) :]))


def device_of_unit(device_id: str) -> str | None:
    """Return the UUID of the device that a unit of memory is of, None for the id of something else."""
    uuid, separator, number = device_id.partition(_SEPARATOR)
    is_unit = bool(separator) and number.isascii() and number.isdecimal() and is_device_uuid(uuid)
    return uuid if is_unit else None


def memory_of_units(device_ids: Iterable[str], unit_bytes: UnitBytes) -> Mapping[str, int]:
    """Return the bytes of each device that these units are; ids of other things count nothing."""
    memory: dict[str, int] = {}
    for device_id in device_ids:
        uuid = device_of_unit(device_id)
        size = None if uuid is None else unit_bytes(uuid)
        if uuid is not None and size is not None:
            memory[uuid] = memory.get(uuid, 0) + size
    return memory


def memory_of_containers(
    assignments: Iterable[DeviceAssignment], unit_bytes: UnitBytes
) -> Mapping[tuple[PodContainer, str], int]:
    """Return what each container was given of the memory of each device, in bytes: units, and parts by claims."""
    found: dict[tuple[PodContainer, str], int] = {}
    for each in assignments:
        for uuid, size in (*memory_of_units(each.device_ids, unit_bytes).items(), *each.memory):
            found[each.holder, uuid] = found.get((each.holder, uuid), 0) + size
    return found
