"""Renders what the GPUs are set to: ``/etc/grapnel/gpu-settings.json`` (contract ``docs/contracts/gpu-settings``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provision.declaration.spec.model import Clocks, GpuSettings, StackSpec

GPU_SETTINGS_PATH = "/etc/grapnel/gpu-settings.json"


def render_gpu_settings(stack: StackSpec) -> str | None:
    """Return the file's text, None where nothing is declared."""
    if not stack.node.gpus:
        return None
    entries = [_entry(entry) for entry in stack.node.gpus]
    return json.dumps({"schema": "grapnel.dev/gpu-settings/v1alpha1", "settings": entries}, indent=2) + "\n"


def _entry(entry: GpuSettings) -> dict[str, Any]:
    values = {
        "persistenceMode": entry.persistence_mode,
        "computeMode": None if entry.compute_mode is None else entry.compute_mode.value,
        "powerLimitWatts": entry.power_limit_watts,
        "graphicsClockMHz": _clocks(entry.graphics_clock),
        "memoryClockMHz": _clocks(entry.memory_clock),
    }
    return {
        **({"deviceFilter": [_pci_id(each) for each in entry.device_filter]} if entry.device_filter else {}),
        "devices": entry.devices if entry.devices == "all" else list(entry.devices),
        **{key: value for key, value in values.items() if value is not None},
    }


def _clocks(clocks: Clocks | None) -> dict[str, int] | None:
    return None if clocks is None else {"min": clocks.min, "max": clocks.max}


def _pci_id(text: str) -> str:
    return ":".join(f"0x{part[2:].upper()}" for part in text.split(":"))
