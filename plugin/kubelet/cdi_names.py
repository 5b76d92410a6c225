"""The names under which engines are asked for the devices of claims. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

KIND = "grapnel.dev/gpu"
OTHERS, OTHER_KIND = "devices.grapnel.dev", "grapnel.dev/device"  # the driver of other devices than GPUs
_PCI = re.compile(r"pci-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])")
_OLD_MIG = "MIG-GPU-"
_MPS, _MEMORY = "mps-", "memory-"
_DIGITS = 15  # of an amount: far more than any GPU has


class MemoryPart(NamedTuple):
    """So many bytes of a GPU's memory. `number` tells parts of one size apart: engines add each name once."""

    uuid: str
    memory_bytes: int
    number: int = 0


def device_name(uuid: str) -> str:
    """Return a UUID as the name of a CDI device: old ones of MIG devices (MIG-GPU-<uuid>/1/0) have slashes."""
    return uuid.replace("/", "_")


def mps_name(uuid: str) -> str:
    """Return what stands for the UUID of a GPU where a container is to be a client of its MPS server."""
    return f"{_MPS}{uuid}"


def memory_name(part: MemoryPart) -> str:
    """Return what stands for the UUID of a GPU of whose memory a container has this part."""
    number = f".{part.number}" if part.number else ""
    return f"{_MEMORY}{part.memory_bytes}{number}-{part.uuid}"


def memory_of(name: str) -> MemoryPart | None:
    """Return which part of a GPU's memory a qualified name stands for, None for another name."""
    amount, _, uuid = name.removeprefix(f"{KIND}={_MEMORY}").partition("-")
    size, _, number = amount.partition(".")
    is_amount = name.startswith(f"{KIND}={_MEMORY}") and _is_number(size) and _is_number(number or "0")
    return MemoryPart(uuid, int(size), int(number or "0")) if is_amount and uuid else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS


def qualified(uuid: str) -> str:
    """Return the name by which an engine is asked for a device."""
    return f"{KIND}={device_name(uuid)}"


def other_id(name: str) -> str:
    """Return the id of another device than a GPU by its name in slices: a PCI address, where that is its id."""
    found = _PCI.fullmatch(name)
    return name if found is None else "{}:{}:{}.{}".format(*found.groups())


def uuid_of(name: str) -> str:
    """Return the UUID of a device by its qualified name, "" where it is none of ours, or no device."""
    kind, _, device = name.partition("=")
    if kind != KIND or device.startswith((_MPS, _MEMORY)):
        return ""
    return device.replace("_", "/") if device.startswith(_OLD_MIG) else device
