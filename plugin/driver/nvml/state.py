"""What NVML says of how each GPU is set up: the MIG layout, the NVLink fabric, ECC and the wear of its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from plugin.driver.gpu_state import COMPLETED, Fabric, GpuState, MigDevice
from plugin.driver.nvml.condition import read_condition
from plugin.driver.nvml.loading.trust import FAULTS, MAX_MIG_DEVICES, gpu_count, gpu_uuid, reason

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")
_Handle = Any  # NVML's handles have no type

# What a GPU of another kind or an older driver answers; any other error is the GPU's own.
_UNKNOWN = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_InvalidArgument,
    pynvml.NVMLError_NoPermission,
)
_FABRIC = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not started",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in progress",
    pynvml.NVML_GPU_FABRIC_STATE_COMPLETED: COMPLETED,
}


def read_states() -> tuple[dict[str, GpuState], dict[str, str]]:
    """Return the states of the GPUs by UUID, and why a GPU that has a UUID does not tell its state."""
    states, silent = {}, {}
    for index in range(gpu_count()):
        uuid = ""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = gpu_uuid(handle)
            states[uuid] = _read(handle)
        except FAULTS as error:
            if uuid:
                silent[uuid] = reason(error)
    return states, silent


def _known(question: Callable[[], _Answer]) -> _Answer | None:
    try:
        return question()
    except _UNKNOWN:
        return None


def _read(handle: _Handle) -> GpuState:
    reading = read_condition(handle)
    ecc_mode = _known(lambda: pynvml.nvmlDeviceGetEccMode(handle))
    return GpuState(
        mig=_read_mig(handle),
        fabric=read_fabric(handle),
        links_active=reading.links_active,
        ecc_enabled=None if ecc_mode is None else bool(ecc_mode[0]),
        uncorrected=reading.aggregate_uncorrected,
        rows_pending=reading.rows_pending,
        rows_failed=reading.rows_failed,
        pages_pending=reading.pages_pending,
    )


def _read_mig(handle: _Handle) -> tuple[MigDevice, ...] | None:
    mode = _known(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    if mode is None or not mode[0]:
        return None
    devices = []
    for index in range(min(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)), MAX_MIG_DEVICES)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            continue
        profile = str(pynvml.nvmlDeviceGetName(device)).rpartition(" MIG ")[2]
        devices.append(MigDevice(profile, *_placement(handle, device)))
    return tuple(sorted(devices, key=str))


def _placement(handle: _Handle, device: _Handle) -> tuple[int | None, int | None]:
    """Return where the GPU instance of a MIG device lies; an older driver tells it to nobody, others to root alone."""
    try:
        number = pynvml.nvmlDeviceGetGpuInstanceId(device)
        placement = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(handle, number)).placement
    except FAULTS:
        return None, None
    return int(placement.start), int(placement.size)


def read_fabric(handle: _Handle) -> Fabric | None:
    """Return the NVLink fabric of a GPU, None where there is none or the driver does not say."""
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    try:
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, pynvml.byref(info))
    except FAULTS:
        return None
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return None
    if info.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return Fabric(_FABRIC.get(info.state, f"state {info.state}"))
    if info.status != pynvml.NVML_SUCCESS:
        return Fabric(f"failed with status {info.status}")
    cluster = bytes(info.clusterUuid).hex()
    parts = (cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:])
    return Fabric(COMPLETED, "-".join(parts), int(info.cliqueId))
