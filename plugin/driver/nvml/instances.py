"""What NVML says of who has a GPU: its memory and processes, or those of each GPU instance that MIG cuts it into.

Utilisation is not measured of instances (NVML answers "not supported"). Compute instances of one GPU instance share its
memory, so they are one row.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pynvml

from plugin.driver.nvml.loading.trust import MAX_MIG_DEVICES, ask, gpu_count, gpu_uuid
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


def read_memory(handle: Any) -> dict[str, int]:
    """Return sizes by their fields of `GpuTelemetry`; before driver 510 what the driver reserves counts as used."""
    memory = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2))
    if memory is not None:
        sizes = {"memory_reserved_bytes": int(memory.reserved)}
    else:
        memory, sizes = ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle)), {}
    if memory is None or not memory.total:  # no GPU has none: 0 says nothing either
        return {}
    return {
        **sizes,
        "memory_total_bytes": int(memory.total),
        "memory_used_bytes": int(memory.used),
        "memory_free_bytes": int(memory.free),
    }


# Who works on which GPU, and nothing else: asked more often than a page of metrics, and without its samples.


def read_occupancy() -> tuple[GpuTelemetry, ...] | None:
    """Return the processes of every GPU that answers, within the session that is open; None without one."""
    count = ask(gpu_count)
    if count is None:
        return None
    handles = (ask(lambda index=index: pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count))  # type: ignore[misc] # bound at once
    answers = (_occupancy(handle) for handle in handles if handle is not None)
    return tuple(answer for answer in answers if answer is not None)


def _occupancy(handle: Any) -> GpuTelemetry | None:
    uuid = ask(lambda: gpu_uuid(handle))
    if uuid is None:
        return None
    asked_at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    instances = read_instances(handle, uuid)
    processes = None if instances else read_processes(handle)
    return GpuTelemetry(uuid, processes=processes, instances=instances, asked_at_s=asked_at_s)
