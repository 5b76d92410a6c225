"""Asks NVML for MIG instances and has it make them: the only importer of ctypes among the node's driver code.

Functions, structures and numbers are those of NVIDIA's published header (nvml.h). Whoever opens NVML has the GPUs open
and keeps the library that it found, so this runs in a process of its own, which ends before the module is unloaded.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS, _INVALID_ARGUMENT, _NOT_SUPPORTED = 0, 2, 3
_GPU_PROFILES = 0x20  # more than the header has: NVML refuses a number that it does not know
_COMPUTE_PROFILES = 0x10
_SHARED_ENGINES = 0
_UUID_BYTES = 96
_MAX_INSTANCES = 64


class NvmlError(Exception):
    """NVML refused; the message has its words."""


class _Placement(ctypes.Structure):
    _fields_ = (("start", c_uint), ("size", c_uint))


class _GpuProfile(ctypes.Structure):
    _fields_ = (
        *((name, c_uint) for name in ("id", "p2p", "slices", "instances", "multiprocessors", "copy_engines")),
        *((name, c_uint) for name in ("decoders", "encoders", "jpeg", "ofa")),
        ("memory_mib", c_ulonglong),
    )


class _ComputeProfile(ctypes.Structure):
    _fields_ = tuple(
        (name, c_uint)
        for name in ("id", "slices", "instances", "multiprocessors", "copy", "decoders", "encoders", "jpeg", "ofa")
    )


class _GpuInfo(ctypes.Structure):
    _fields_ = (("device", c_void_p), ("id", c_uint), ("profile", c_uint), ("place", _Placement))


class _ComputeInfo(ctypes.Structure):
    _fields_ = (
        ("device", c_void_p), ("instance", c_void_p), ("id", c_uint), ("profile", c_uint), ("place", _Placement),
    )  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """An instance as NVML has it: its handle, its id, and where it lies."""

    handle: int
    id: int
    start: int
    size: int


class Nvml:
    """An open NVML; used as a context, which closes it."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise NvmlError(str(error)) from error
        self._call("nvmlInit_v2")

    def __enter__(self) -> Nvml:  # noqa: PYI034 - Self is younger than the Python of some nodes
        return self

    def __exit__(self, *_: object) -> None:
        self._library.nvmlShutdown()

    def _call(self, name: str, *arguments: object) -> None:
        code = self._answer(name, *arguments)
        if code != _SUCCESS:
            raise NvmlError(f"{name.partition('_')[0]}: {self._words(code)}")

    def _answer(self, name: str, *arguments: object) -> int:
        function = getattr(self._library, name, None)
        if function is None:
            raise NvmlError(f"{_LIBRARY} has no {name}")
        function.restype = c_int
        return int(function(*arguments))

    def _words(self, code: int) -> str:
        function = self._library.nvmlErrorString
        function.restype, function.argtypes = c_char_p, (c_int,)
        return bytes(function(code) or b"").decode("ascii", "replace") or f"error {code}"

    def gpus(self) -> dict[str, int]:
        """Return the handles of the GPUs by UUID."""
        count = c_uint()
        self._call("nvmlDeviceGetCount_v2", byref(count))
        found = {}
        for index in range(count.value):
            handle, uuid = c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
            self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
            self._call("nvmlDeviceGetUUID", handle, uuid, c_uint(_UUID_BYTES))
            found[uuid.value.decode("ascii", "replace")] = int(handle.value or 0)
        return found

    def is_mig(self, gpu: int) -> bool:
        """Tell whether MIG mode is on; off where the GPU has none."""
        current, pending = c_uint(), c_uint()
        code = self._answer("nvmlDeviceGetMigMode", c_void_p(gpu), byref(current), byref(pending))
        if code in (_NOT_SUPPORTED, _INVALID_ARGUMENT):
            return False
        if code != _SUCCESS:
            raise NvmlError(f"nvmlDeviceGetMigMode: {self._words(code)}")
        return bool(current.value)

    def enable_mig(self, gpu: int) -> None:
        """Turn MIG mode on; raises `NvmlError` where that waits for a reset of the GPU."""
        activation = c_int()
        self._call("nvmlDeviceSetMigMode", c_void_p(gpu), c_uint(1), byref(activation))
        if activation.value != _SUCCESS:
            raise NvmlError(f"mig mode is not in force before the gpu is reset: {self._words(activation.value)}")

    def gpu_profiles(self, gpu: int) -> dict[int, tuple[int, int]]:
        """Return the profiles that a GPU has, by the header's number: their id here, and how many fit at most."""
        return self._profiles("nvmlDeviceGetGpuInstanceProfileInfo", gpu, _GPU_PROFILES, _GpuProfile())

    def compute_profiles(self, instance: int) -> dict[int, tuple[int, int]]:
        """Return the profiles that a GPU instance has for compute instances, as `gpu_profiles` does."""
        name = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
        return self._profiles(name, instance, _COMPUTE_PROFILES, _ComputeProfile(), c_uint(_SHARED_ENGINES))

    def _profiles(
        self, name: str, handle: int, count: int, info: _GpuProfile | _ComputeProfile, *more: object
    ) -> dict[int, tuple[int, int]]:
        found = {}
        for number in range(count):
            code = self._answer(name, c_void_p(handle), c_uint(number), *more, byref(info))
            if code == _SUCCESS:
                found[number] = (int(info.id), int(info.instances))
            elif code not in (_NOT_SUPPORTED, _INVALID_ARGUMENT):
                raise NvmlError(f"{name}: {self._words(code)}")
        return found

    def gpu_instances(self, gpu: int, profile: tuple[int, int]) -> list[Instance]:
        """Return the GPU instances of a profile."""
        handles = self._handles("nvmlDeviceGetGpuInstances", gpu, profile)
        return [self._described("nvmlGpuInstanceGetInfo", each, _GpuInfo()) for each in handles]

    def compute_instances(self, instance: int, profile: tuple[int, int]) -> list[Instance]:
        """Return the compute instances of a profile in a GPU instance."""
        handles = self._handles("nvmlGpuInstanceGetComputeInstances", instance, profile)
        return [self._described("nvmlComputeInstanceGetInfo_v2", each, _ComputeInfo()) for each in handles]

    def _handles(self, name: str, handle: int, profile: tuple[int, int]) -> list[int]:
        found, count = (c_void_p * _MAX_INSTANCES)(), c_uint(_MAX_INSTANCES)
        self._call(name, c_void_p(handle), c_uint(profile[0]), found, byref(count))
        return [int(each or 0) for each in found[: min(count.value, _MAX_INSTANCES)]]

    def _described(self, name: str, handle: int, info: _GpuInfo | _ComputeInfo) -> Instance:
        self._call(name, c_void_p(handle), byref(info))
        return Instance(handle, int(info.id), int(info.place.start), int(info.place.size))

    def make_gpu_instance(self, gpu: int, profile: tuple[int, int], start: int, size: int) -> int:
        """Make a GPU instance at a place and return its handle."""
        made, place = c_void_p(), _Placement(start, size)
        name = "nvmlDeviceCreateGpuInstanceWithPlacement"
        self._call(name, c_void_p(gpu), c_uint(profile[0]), byref(place), byref(made))
        return int(made.value or 0)

    def make_compute_instance(self, instance: int, profile: tuple[int, int]) -> None:
        """Make a compute instance at the first free place of a GPU instance."""
        made = c_void_p()
        name = "nvmlGpuInstanceCreateComputeInstance"
        self._call(name, c_void_p(instance), c_uint(profile[0]), byref(made))
