"""Sizes of a GPU's memory, or of a MIG device's."""

from __future__ import annotations

from typing import Any

import pynvml

from plugin.driver.nvml.asking import ask


def read_memory(handle: Any) -> dict[str, int]:
    """Return sizes by their fields of `GpuTelemetry`; before driver 510 what the driver reserves counts as used."""
    memory = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2))
    if memory is not None:
        sizes = {"memory_reserved_bytes": int(memory.reserved)}
    else:
        memory, sizes = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle)), {}
    if memory is None:
        return {}
    return {
        **sizes,
        "memory_total_bytes": int(memory.total),
        "memory_used_bytes": int(memory.used),
        "memory_free_bytes": int(memory.free),
    }
