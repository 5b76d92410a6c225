"""Who works on a GPU or a MIG device: NVML's lists of processes, with memory and use of the SMs.

NVML gives the process ids of the machine's own process namespace. Not here: whose processes they are.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pynvml

from plugin.driver.nvml.loading.trust import FAULTS, ask
from plugin.driver.telemetry import GpuProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# The functions with a version: pynvml's other ones raise an error of no NVML class on older drivers.
_KINDS = tuple(
    (f"nvmlDeviceGet{kind}RunningProcesses_v3", f"nvmlDeviceGet{kind}RunningProcesses_v2")
    for kind in ("Compute", "Graphics", "MPSCompute")
)
MAX_PROCESSES = 1024  # of one GPU; beyond, none is told: half of a list would look like a whole one
_WINDOW_US = 2_000_000  # NVML's sample periods are 1/6 s to 1 s; a process without a sample since then is idle
_MAX_PERCENT = 100


def read_processes(handle: Any) -> tuple[GpuProcess, ...] | None:
    """Return the processes by id; None where NVML does not list them, which is not the same as none.

    A process that computes and draws is in two lists with the same memory. The use of a process that has not been busy
    lately is 0, and None on GPUs whose driver measures no process (MIG).
    """
    lists = [_list(handle, names) for names in _KINDS]
    if lists[0] is None:
        return None
    memory = memory_by_pid(process for found in lists for process in found or ())
    if len(memory) > MAX_PROCESSES:
        return None
    busy = _busy_percent(handle)
    return tuple(
        GpuProcess(pid, used, None if busy is None else busy.get(pid, 0)) for pid, used in sorted(memory.items())
    )


def memory_by_pid(processes: Iterable[Any]) -> dict[int, int | None]:
    """Return the memory of each process, which every list tells as a whole; None where none does."""
    memory: dict[int, int | None] = {}
    for process in processes:
        pid, used = int(process.pid), process.usedGpuMemory
        known = memory.get(pid)
        memory[pid] = known if used is None else max(int(used), known or 0)
    return memory


def _list(handle: Any, names: Iterable[str]) -> list[Any] | None:
    for name in names:
        question: Callable[[Any], list[Any]] = getattr(pynvml, name)
        found: list[Any] | None = ask(lambda question=question: question(handle))  # type: ignore[misc] # bound at once
        if found is not None:
            return found
    return None


def _busy_percent(handle: Any) -> Mapping[int, int] | None:
    """Return the newest sample of each process that has one; None where NVML does not measure."""
    since_us = int(time.time() * 1_000_000) - _WINDOW_US
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except FAULTS as error:
        # NOT_FOUND: no sample since then. SUCCESS: pynvml's way to say that it needs room for none.
        return {} if getattr(error, "value", None) in {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS} else None
    return newest_percent(samples)


def newest_percent(samples: Iterable[Any]) -> Mapping[int, int]:
    """Return the newest use by process, without entries that no process can have: drivers leave some unwritten."""
    found: dict[int, int] = {}
    for sample in sorted(samples, key=lambda each: int(each.timeStamp)):
        if sample.pid and sample.smUtil <= _MAX_PERCENT:
            found[int(sample.pid)] = int(sample.smUtil)
    return found
