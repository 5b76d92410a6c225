"""GPUs that have the machine's memory and none of their own, of which NVML says no size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# By CUDA's compute capability, of products that are such alone (https://developer.nvidia.com/cuda-gpus): Jetson T4000
# and T5000, and GB10 (DGX Spark), on which nvmlDeviceGetMemoryInfo answers Not Supported
# (NVIDIA/k8s-device-plugin#1482). GPUs of GH200, GB200 and GB300 have memory of their own, and NVML says how much.
_UNIFIED = frozenset({"11.0", "12.1"})
_MOST_BYTES = 64 * 1024


def has_unified_memory(compute_capability: str) -> bool:
    """Whether a GPU is known to have no memory but the machine's."""
    return compute_capability in _UNIFIED


def read_memory(proc_root: Path) -> int | None:
    """Return the machine's memory in bytes (`MemTotal`, proc(5)), None where it cannot be read."""
    try:
        with (proc_root / "meminfo").open("rb") as file:
            lines = file.read(_MOST_BYTES).splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"MemTotal:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
