"""What NVML says of a GPU that is cut by MIG: memory and processes of each GPU instance.

Utilisation is not measured there (NVML answers "not supported"). Compute instances of one GPU instance share its
memory, so they are one row.
"""

from __future__ import annotations

import re
from typing import Any

import pynvml

from plugin.driver.nvml.asking import ask
from plugin.driver.nvml.loading.trust import MAX_MIG_DEVICES
from plugin.driver.nvml.memory import read_memory
from plugin.driver.nvml.processes import read_processes
from plugin.driver.telemetry import GpuInstance, GpuProcess, GpuTelemetry

_COMPUTE_SLICES = re.compile(r"^\d+c\.")


def read_instances(handle: Any, uuid: str) -> tuple[GpuInstance, ...]:
    """Return the GPU instances of a GPU by their numbers; none where it is not in MIG mode."""
    mode = ask(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    count = ask(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))) if mode is not None and mode[0] else None
    found: dict[int, GpuInstance] = {}
    for index in range(min(count or 0, MAX_MIG_DEVICES)):
        device = ask(lambda index=index: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))  # type: ignore[misc] # bound at once
        instance = None if device is None else _read(device, uuid)
        if instance is not None:
            known = found.get(instance.number)
            found[instance.number] = instance if known is None else _together(known, instance)
    return tuple(instance for _, instance in sorted(found.items()))


def _read(device: Any, uuid: str) -> GpuInstance | None:
    own = ask(lambda: str(pynvml.nvmlDeviceGetUUID(device)))
    number = ask(lambda: int(pynvml.nvmlDeviceGetGpuInstanceId(device)))
    if own is None or number is None:
        return None
    name = ask(lambda: str(pynvml.nvmlDeviceGetName(device))) or ""
    sizes: dict[str, Any] = {**read_memory(device), "processes": read_processes(device)}
    return GpuInstance(number, profile_of(name), (own,), GpuTelemetry(uuid, **sizes))


def profile_of(name: str) -> str:
    """Return the GPU instance's profile from a MIG device's name (`… MIG 1c.3g.20gb`), empty where it has none."""
    return _COMPUTE_SLICES.sub("", name.rpartition(" MIG ")[2]) if " MIG " in name else ""


def _together(one: GpuInstance, other: GpuInstance) -> GpuInstance:
    """Return one row of two compute instances of a GPU instance."""
    processes: tuple[GpuProcess, ...] | None = None
    if one.measured.processes is not None and other.measured.processes is not None:
        processes = (*one.measured.processes, *other.measured.processes)
    return one._replace(
        device_uuids=(*one.device_uuids, *other.device_uuids), measured=one.measured._replace(processes=processes)
    )
