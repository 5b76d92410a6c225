"""What a claim is given of devices, as the scheduler decided: what of it counts together, and what contradicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.base.errors import ClaimError
from plugin.dra.configs import config_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.dra.claims import ClaimName, Result
    from plugin.dra.configs import DeviceConfig
    from plugin.dra.devices import DraDevice
    from plugin.dra.store import PreparedDevice, Record
    from plugin.kubelet.cdi_names import MemoryPart


def together(result: Result, results: tuple[Result, ...]) -> Result:
    """Return a result with all that its claim has of the device, as several requests may have shares of one."""
    same = [each for each in results if each.device == result.device and not each.is_admin]
    return result._replace(
        shares=sum(each.shares for each in same), memory_bytes=sum(each.memory_bytes for each in same)
    )


def is_of(record: Record, results: tuple[Result, ...]) -> bool:
    """Whether a claim still has what was prepared for it; it may have been allocated anew."""
    have = {(each.request, each.pool, each.device, each.share_id) for each in record.devices}
    return have == {(each.request, each.pool, each.device, each.share_id) for each in results}


def sharing_of(claim: ClaimName, result: Result, device: DraDevice) -> DeviceConfig:
    """Return how a claim wants a device shared; raises ClaimError."""
    try:
        return config_of(result.configs, result.full_request, device.type, device.uuid)
    except ValueError as error:
        raise ClaimError(f"{claim}: {error}", "docs/dra.md says which configs are served") from error


def without_contradiction(claim: ClaimName, devices: list[PreparedDevice]) -> tuple[PreparedDevice, ...]:
    """Return the devices of a claim; raises ClaimError where they cannot be shared as it says all at once."""
    by_uuid: dict[str, DeviceConfig] = {}
    for each in devices:
        if not each.is_admin and by_uuid.setdefault(each.uuid, each.sharing) != each.sharing:
            raise ClaimError(f"{claim} asks for {by_uuid[each.uuid]} and for {each.sharing} of {each.uuid}")
    if sum(each.mps is not None for each in by_uuid.values()) > 1:
        raise ClaimError(
            f"{claim} asks for MPS of several gpus: a process is the client of one control daemon",
            "a claim for each, and a container for each",
        )
    return tuple(devices)


def numbered(devices: Iterable[PreparedDevice], taken: set[MemoryPart]) -> list[PreparedDevice]:
    """Return devices whose parts of memory have names of their own, as a container may have several of one GPU.

    `taken` are those of other claims; the new ones are added to it.
    """
    found = []
    for device in devices:
        each = device
        while each.memory_bytes and each.memory_part in taken:
            each = each._replace(memory_number=each.memory_number + 1)
        taken.add(each.memory_part)
        found.append(each)
    return found
