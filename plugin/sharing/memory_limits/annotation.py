"""The annotation `grapnel.dev/memory`: how much memory of which GPU (or MIG device) a container was given. Pure.

`UUID=BYTES,UUID=BYTES`, after `required,` where the container must not start without its limits. The device plugin
writes it into its answer to Allocate; the hook reads it where it trusts `grapnel.dev/allocation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.allocation.answer import REQUIRED, render_memory
from plugin.sharing.memory_limits.units import is_device_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_GPUS = 64
_MAX_DIGITS = 15  # far more than any GPU has, and far less than NVML's "no limit"


@dataclass(frozen=True)
class GivenMemory:
    """Bytes by the UUID of each GPU, and whether the driver has to keep to them."""

    memory: Mapping[str, int]
    is_required: bool = False


def render_annotation(given: GivenMemory) -> str:
    """Return the annotation's value; "" for nothing, which is no annotation."""
    return render_memory(given.memory, is_required=given.is_required) if given.memory else ""


def parse_annotation(text: str) -> GivenMemory:
    """Return what an annotation says; raises ValueError for everything that `render_annotation` does not write."""
    entries = text.split(",")
    is_required = entries[0] == REQUIRED
    amounts = entries[1:] if is_required else entries
    if not 0 < len(amounts) <= _MAX_GPUS:
        raise ValueError(f"it names no GPU, or more than {_MAX_GPUS}")
    memory: dict[str, int] = {}
    for entry in amounts:
        uuid, _, size = entry.partition("=")
        if not is_device_uuid(uuid) or uuid in memory:
            raise ValueError(f"{entry[:64]!a} does not name another GPU by its UUID")
        memory[uuid] = _parse_bytes(size)
    return GivenMemory(memory, is_required)


def _parse_bytes(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and not text.startswith("0") and len(text) <= _MAX_DIGITS
    if not is_number:
        raise ValueError(f"{text[:64]!a} is not a number of bytes")
    return int(text)
