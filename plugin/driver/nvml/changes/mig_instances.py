"""Reads, makes and destroys MIG instances through NVML. To change anything takes root.

Not here: which instances there are to be, and who must not lose his.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pynvml

from plugin.base.errors import MigError
from plugin.driver.mig_instances import CuttableGpu, GpuInstance, InstanceProfile
from plugin.driver.nvml.loading.trust import FAULTS, MAX_MIG_DEVICES, ask, gpu_count, gpu_uuid, reason
from plugin.driver.snapshot import MigSize

if TYPE_CHECKING:
    from collections.abc import Iterator

_Handle = Any  # NVML's handles have no type

_EIGHTHS = 8  # of its memory: what NVIDIA's names round to
_MIB = 1 << 20
# What the names of profiles have beside slices and memory, where an older driver tells no names.
_ATTRIBUTES = {
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}
_MAX_PLACES = 64
_PREFIX = "MIG "


# Read


def read_gpus() -> tuple[CuttableGpu, ...]:
    """Return the GPUs, with the reason of one that does not answer; raises MigError where none are counted."""
    try:
        count = gpu_count()
    except FAULTS as error:
        raise MigError(f"nvml does not count the gpus: {reason(error)}") from error
    return tuple(_answer(index) for index in range(count))


def _answer(index: int) -> CuttableGpu:
    try:
        return _read(index)
    except FAULTS as error:
        return CuttableGpu(index, f"gpu {index}", -1, problem=reason(error))


def _read(index: int) -> CuttableGpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    mode = _mode(handle)
    profiles = () if mode is None else tuple(_profiles(handle))
    return CuttableGpu(
        index=index,
        uuid=gpu_uuid(handle),
        minor=int(pynvml.nvmlDeviceGetMinorNumber(handle)),
        model=ask(lambda: str(pynvml.nvmlDeviceGetName(handle))) or "",
        pci_device_id=int(pci.pciDeviceId),
        pci_subsystem_id=int(pci.pciSubSystemId),
        is_cut=None if mode is None else mode[0],
        is_pending=None if mode is None else mode[1],
        needs_reset=_needs_reset(handle),
        profiles=profiles,
        instances=tuple(_instances(handle, profiles)) if mode and mode[0] else (),
        pids=_pids(handle),
    )


def _mode(handle: _Handle) -> tuple[bool, bool] | None:
    try:
        current, pending = pynvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_InvalidArgument):
        return None
    return bool(current), bool(pending)


def _needs_reset(handle: _Handle) -> bool:
    """Whether the mode is only in force after a reset: up to NVIDIA Ampere, says NVIDIA's MIG user guide."""
    architecture = ask(lambda: int(pynvml.nvmlDeviceGetArchitecture(handle)))
    return architecture is None or architecture <= int(pynvml.NVML_DEVICE_ARCH_AMPERE)


def _profiles(handle: _Handle) -> Iterator[InstanceProfile]:
    """Yield the profiles of a GPU; some drivers tell none while MIG mode is off."""
    total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _profile_info(handle, number)
        if info is not None:
            told = str(getattr(info, "name", "")).removeprefix(_PREFIX)
            name = told or _name(int(info.sliceCount), int(info.memorySizeMB), total, _ATTRIBUTES.get(number, ""))
            places = _places(handle, int(info.id))
            size = MigSize(
                int(info.memorySizeMB),
                int(info.multiprocessorCount),
                int(info.sliceCount),
                int(info.sliceCount),
                int(info.copyEngineCount),
                int(info.decoderCount),
                int(info.encoderCount),
                int(info.jpegCount),
                int(info.ofaCount),
            )
            yield InstanceProfile(int(info.id), name, int(info.sliceCount), int(info.instanceCount), places, size)


def _profile_info(handle: _Handle, number: int) -> Any | None:
    for version in (2, 1):
        try:
            return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            return None
        except pynvml.NVMLError_FunctionNotFound:
            continue
    return None


def _name(slices: int, memory_mib: int, total_bytes: int, attribute: str) -> str:
    """Return a profile's name as mig-parted works it out: eighths of the GPU's memory in whole GiB."""
    eighths = -(-memory_mib * _MIB * _EIGHTHS // total_bytes)
    gib = -(-total_bytes // (1 << 30))
    return f"{slices}g.{int(gib * eighths / _EIGHTHS + 0.5)}gb{attribute}"


def _places(handle: _Handle, profile: int) -> tuple[tuple[int, int], ...]:
    places, count = (pynvml.c_nvmlGpuInstancePlacement_t * _MAX_PLACES)(), ctypes.c_uint(_MAX_PLACES)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile, places, ctypes.byref(count))
    return tuple((int(each.start), int(each.size)) for each in places[: min(count.value, _MAX_PLACES)])


def _instances(handle: _Handle, profiles: tuple[InstanceProfile, ...]) -> Iterator[GpuInstance]:
    devices = _devices(handle)
    found = []
    for profile in profiles:
        for instance in _handles(pynvml.nvmlDeviceGetGpuInstances, pynvml.c_nvmlGpuInstance_t, handle, profile.id):
            info = pynvml.nvmlGpuInstanceGetInfo(instance)
            number, place = int(info.id), info.placement
            own = [device for instance_id, device in devices if instance_id == number]
            found.append(
                GpuInstance(
                    id=number,
                    profile=profile.name,
                    start=int(place.start),
                    size=int(place.size),
                    compute=tuple((each, slices) for each, slices, _ in _compute(instance)),
                    uuids=tuple(str(pynvml.nvmlDeviceGetUUID(device)) for device in own),
                    pids=tuple(sorted({pid for device in own for pid in _pids(device)})),
                )
            )
    yield from sorted(found, key=lambda each: each.id)


def _handles(question: Any, kind: Any, of: _Handle, profile: int) -> list[_Handle]:
    found, count = (kind * MAX_MIG_DEVICES)(), ctypes.c_uint(MAX_MIG_DEVICES)
    question(of, profile, found, ctypes.byref(count))
    return list(found[: min(count.value, MAX_MIG_DEVICES)])


def _compute(instance: _Handle) -> list[tuple[int, int, _Handle]]:
    """Return id, slices and handle of the compute instances in a GPU instance, by id."""
    question, kind = pynvml.nvmlGpuInstanceGetComputeInstances, pynvml.c_nvmlComputeInstance_t
    found = [
        (int(pynvml.nvmlComputeInstanceGetInfo_v2(each).id), slices, each)
        for slices, profile in _compute_profiles(instance)
        for each in _handles(question, kind, instance, profile)
    ]
    return sorted(found, key=lambda each: each[0])


def _compute_profiles(instance: _Handle) -> Iterator[tuple[int, int]]:
    """Yield slices and id of each profile for compute instances."""
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        try:
            info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, shared, 1)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
        yield int(info.sliceCount), int(info.id)


def _devices(handle: _Handle) -> list[tuple[int, _Handle]]:
    """Return the MIG devices with the numbers of their GPU instances."""
    found = []
    for index in range(min(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)), MAX_MIG_DEVICES)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            continue
        found.append((int(pynvml.nvmlDeviceGetGpuInstanceId(device)), device))
    return found


def _pids(device: _Handle) -> tuple[int, ...]:
    running = ask(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device)) or ()
    return tuple(sorted({int(process.pid) for process in running}))


# Change


def set_mode(uuid: str, *, is_on: bool) -> str:
    """Turn MIG mode on or off; returns why that waits for a reset, "" where it is in force. Raises MigError."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        status = int(pynvml.nvmlDeviceSetMigMode(handle, int(is_on)))
    except FAULTS as error:
        raise MigError(f"{uuid}: mig mode cannot be changed: {reason(error)}", _hint(error)) from error
    return "" if status == pynvml.NVML_SUCCESS else str(pynvml.nvmlErrorString(status)).lower()


def destroy(uuid: str, instance: int) -> None:
    """Destroy a GPU instance and its compute instances, the last one first; raises MigError, also for one in use."""
    try:
        found = pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByUUID(uuid), instance)
        for _, _, each in reversed(_compute(found)):
            pynvml.nvmlComputeInstanceDestroy(each)
        pynvml.nvmlGpuInstanceDestroy(found)
    except FAULTS as error:
        raise MigError(f"{uuid}: gpu instance {instance} is not destroyed: {reason(error)}", _hint(error)) from error


def create(uuid: str, profile: int, start: int, size: int) -> int:
    """Make a GPU instance at a place and return its number; raises MigError."""
    try:
        place = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        made = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile, ctypes.byref(place))
        return int(pynvml.nvmlGpuInstanceGetInfo(made).id)
    except FAULTS as error:
        raise MigError(f"{uuid}: no gpu instance is made at {start}:{size}: {reason(error)}", _hint(error)) from error


def add_compute(uuid: str, instance: int, slices: int) -> None:
    """Make a compute instance of so many slices in a GPU instance; raises MigError."""
    what = f"{uuid}: no compute instance of {slices} slices is made in gpu instance {instance}"
    try:
        found = pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByUUID(uuid), instance)
        profile = next((each for count, each in _compute_profiles(found) if count == slices), None)
        if profile is None:
            raise MigError(f"{what}: it has no such profile", "nvidia-smi mig -lcip lists them")
        pynvml.nvmlGpuInstanceCreateComputeInstance(found, profile)
    except FAULTS as error:
        raise MigError(f"{what}: {reason(error)}", _hint(error)) from error


def _hint(error: BaseException) -> str:
    if isinstance(error, pynvml.NVMLError_NoPermission):
        return "are you root?"
    if isinstance(error, pynvml.NVMLError_InUse):
        return "grapnel-node holders says who uses the gpus"
    return "see `dmesg | grep -i nvrm`; the same call goes on where this one ended"
