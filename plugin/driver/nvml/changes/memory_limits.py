"""Limits of a control group's memory on a GPU: NVML has them from driver branch 615 on (CUDA 13.4).

Sources: NVML's reference (nvmlSetMemoryLimits_v1_t, nvmlGetMemoryLimits_v1_t) and NVIDIA's "MPS v3 Memory
Partitioning". Called in the thread that has the session open. Not here: whose group it is, and how much it may have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from plugin.base.errors import LimitError, LimitUnsupported
from plugin.driver.nvml.loading.trust import FAULTS, reason
from plugin.driver.telemetry import GroupMemory

if TYPE_CHECKING:
    from collections.abc import Callable

UNLIMITED = 0xFFFFFFFFFFFFFFFF  # NVML_DEVICE_MEMORY_LIMIT_MAX
# No soft limit. Under the kernel's dmem controller it is a reservation, which the driver adds to every group around the
# container's, and which stays there when the container's group is removed without a call of NVML, as runtimes do it.
_NO_RESERVATION = 0
_PAGE_BYTES = 2 << 20  # of a GPU: a driver may round to it
_ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_HINTS = {
    pynvml.NVML_ERROR_NO_PERMISSION: "only root on the host may set limits: run the daemon there",
    pynvml.NVML_ERROR_NOT_FOUND: "with a kernel that has the dmem controller, the runtime must enable it for "
    "containers: see cgroup.subtree_control of the groups around it",
    pynvml.NVML_ERROR_UNINITIALIZED: "is the node released? see: grapnel-node devices",
}


def set_limit(uuid: str, group: str, limit_bytes: int) -> None:
    """Let the processes of a group (its full path) have so much memory of a GPU; raises LimitError.

    It is read back: a driver that keeps another one counts as one that keeps none.
    """
    _set(uuid, group, limit_bytes)
    kept = read_group(uuid, group).limit_bytes
    if kept is None or abs(kept - limit_bytes) >= _PAGE_BYTES:
        told = "none" if kept is None else str(kept)
        raise LimitError(
            f"the driver keeps another limit for {group} than it was told: {told} instead of {limit_bytes} bytes",
            "does another program set limits? see: nvidia-smi memory-limits --get",
        )


def clear_limit(uuid: str, group: str) -> None:
    """Take the limit of a group away; raises LimitError."""
    _set(uuid, group, UNLIMITED)


def read_group(uuid: str, group: str) -> GroupMemory:
    """Return the limit that holds for a group and what its processes have; raises LimitError."""
    asked = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=group.encode())
    _call(uuid, lambda handle: pynvml.nvmlDeviceGetMemoryLimits_v1(handle, asked))
    limit, used = int(asked.hardLimit), int(asked.currentUsed)
    return GroupMemory(None if limit == UNLIMITED else limit, used)


def _set(uuid: str, group: str, hard: int) -> None:
    wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=group.encode(), softLimit=_NO_RESERVATION, hardLimit=hard)
    _call(uuid, lambda handle: pynvml.nvmlDeviceSetMemoryLimits_v1(handle, wanted))


def _call(uuid: str, function: Callable[[Any], None]) -> None:
    try:
        function(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except FAULTS as error:
        code = getattr(error, "value", None)
        if code in _ABSENT:
            raise LimitUnsupported(
                f"{uuid}: this driver has no memory limits for control groups",
                "they take driver 615 or newer, cgroup v2 and a GPU that is not in MIG mode",
            ) from error
        hint = _HINTS.get(code, "see `dmesg | grep -i nvrm`")
        raise LimitError(f"{uuid}: the memory limit cannot be used: {reason(error)}", hint) from error
