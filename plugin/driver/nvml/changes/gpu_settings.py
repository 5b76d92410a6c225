"""Reads and sets persistence mode, compute mode, power limits and locked clocks through NVML. To set takes root.

All of them last until the driver's module is unloaded, or until the driver lets go of a GPU that nobody uses, which
persistence mode keeps it from (nvml.h; NVIDIA's "Driver Persistence"). Not here: what is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from plugin.base.errors import GpuSettingsError
from plugin.driver.gpu_settings import DEFAULT_MODE, EXCLUSIVE_PROCESS, Range, SettableGpu, Setting, Value
from plugin.driver.nvml.details import is_cut
from plugin.driver.nvml.loading.trust import FAULTS, ask, gpu_count, gpu_uuid, reason

if TYPE_CHECKING:
    from collections.abc import Callable

_Handle = Any  # NVML's handles have no type
_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: DEFAULT_MODE,
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "EXCLUSIVE_THREAD",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "PROHIBITED",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: EXCLUSIVE_PROCESS,
}
_NUMBERS = {name: number for number, name in _MODES.items()}
_UNSUPPORTED = "this gpu or its driver does not support it"


# Read


def read_settable() -> tuple[SettableGpu, ...]:
    """Return the GPUs, with the reason of one that does not answer; raises GpuSettingsError where none are counted."""
    try:
        count = gpu_count()
    except FAULTS as error:
        raise GpuSettingsError(f"nvml does not count the gpus: {reason(error)}") from error
    return tuple(_answer(index) for index in range(count))


def _answer(index: int) -> SettableGpu:
    try:
        return _read(index)
    except FAULTS as error:
        return SettableGpu(index, f"gpu {index}", problem=reason(error))


def _read(index: int) -> SettableGpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    power = ask(lambda: int(pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)))
    return SettableGpu(
        index=index,
        uuid=gpu_uuid(handle),
        model=ask(lambda: str(pynvml.nvmlDeviceGetName(handle))) or "",
        pci_device_id=int(pci.pciDeviceId),
        pci_subsystem_id=int(pci.pciSubSystemId),
        is_cut=bool(is_cut(handle)),
        values=_told(
            {
                Setting.PERSISTENCE: lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle)),
                Setting.COMPUTE: lambda: _MODES[int(pynvml.nvmlDeviceGetComputeMode(handle))],
                Setting.POWER: lambda: int(pynvml.nvmlDeviceGetPowerManagementLimit(handle)),
            }
        ),
        limits=_told(
            {
                Setting.POWER: lambda: _power_limits(handle),
                Setting.GRAPHICS: lambda: (1, int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))),
                Setting.MEMORY: lambda: (1, int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM))),
            }
        ),
        defaults={} if power is None else {Setting.POWER: power},
    )


def _told(questions: dict[Setting, Callable[[], Any]]) -> dict[Setting, Any]:
    answers = {setting: ask(question) for setting, question in questions.items()}
    return {setting: answer for setting, answer in answers.items() if answer is not None}


def _power_limits(handle: _Handle) -> Range:
    lowest, highest = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    return int(lowest), int(highest)


# Set


def write_setting(uuid: str, setting: Setting, value: Value | None) -> None:
    """Set one setting; None unlocks clocks. Raises GpuSettingsError."""
    try:
        _write(pynvml.nvmlDeviceGetHandleByUUID(uuid), setting, value)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound) as error:
        raise GpuSettingsError(f"{setting.value} cannot be set: {_UNSUPPORTED}") from error
    except FAULTS as error:
        raise GpuSettingsError(f"{setting.value} cannot be set: {reason(error)}", "are you root?") from error


def _write(handle: _Handle, setting: Setting, value: Value | None) -> None:
    match setting, value:
        case Setting.PERSISTENCE, bool():
            pynvml.nvmlDeviceSetPersistenceMode(handle, int(value))
        case Setting.COMPUTE, str():
            pynvml.nvmlDeviceSetComputeMode(handle, _NUMBERS[value])
        case Setting.POWER, int():
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, value)
        case Setting.GRAPHICS, (lowest, highest):
            pynvml.nvmlDeviceSetGpuLockedClocks(handle, lowest, highest)
        case Setting.GRAPHICS, None:
            pynvml.nvmlDeviceResetGpuLockedClocks(handle)
        case Setting.MEMORY, (lowest, highest):
            pynvml.nvmlDeviceSetMemoryLockedClocks(handle, lowest, highest)
        case Setting.MEMORY, None:
            pynvml.nvmlDeviceResetMemoryLockedClocks(handle)
        case _:
            raise ValueError(f"{value!r} is no value of {setting.value}")
