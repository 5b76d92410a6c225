"""Who works on which GPU, and nothing else: asked more often than a page of metrics, and without its samples."""

from __future__ import annotations

import time
from typing import Any

import pynvml

from plugin.driver.nvml.asking import ask
from plugin.driver.nvml.instances import read_instances
from plugin.driver.nvml.loading.trust import gpu_count, gpu_uuid
from plugin.driver.nvml.processes import read_processes
from plugin.driver.telemetry import GpuTelemetry


def read_occupancy() -> tuple[GpuTelemetry, ...] | None:
    """Return the processes of every GPU that answers, within the session that is open; None without one."""
    count = ask(gpu_count)
    if count is None:
        return None
    handles = (ask(lambda index=index: pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count))  # type: ignore[misc] # bound at once
    answers = (_read(handle) for handle in handles if handle is not None)
    return tuple(answer for answer in answers if answer is not None)


def _read(handle: Any) -> GpuTelemetry | None:
    uuid = ask(lambda: gpu_uuid(handle))
    if uuid is None:
        return None
    asked_at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    instances = read_instances(handle, uuid)
    processes = None if instances else read_processes(handle)
    return GpuTelemetry(uuid, processes=processes, instances=instances, asked_at_s=asked_at_s)
