"""The compute mode of a GPU: who may make contexts on it. In the thread that has NVML's session."""

from __future__ import annotations

import pynvml

from plugin.base.errors import MpsError
from plugin.driver.nvml.loading.trust import FAULTS, reason


def read_compute_mode(uuid: str) -> int:
    """Return the mode, of `nvmlComputeMode_t`; raises MpsError."""
    try:
        return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid)))
    except FAULTS as error:
        raise MpsError(f"its compute mode cannot be read: {reason(error)}") from error


def write_compute_mode(uuid: str, mode: int) -> None:
    """Set the mode; raises MpsError. It lasts until the driver's module is unloaded."""
    try:
        pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), mode)
    except FAULTS as error:
        hint = f"nvidia-smi -i {uuid} -c EXCLUSIVE_PROCESS says more, and whoever may not set it may not share a gpu"
        raise MpsError(f"its compute mode cannot be set: {reason(error)}", hint) from error
