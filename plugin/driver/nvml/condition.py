"""What NVML says of a GPU's condition: one reading per GPU that answers every question that it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from plugin.driver.nvml.loading.trust import FAULTS, MAX_MIG_DEVICES, ask, gpu_count, gpu_uuid
from plugin.driver.nvml.telemetry import value_of
from plugin.driver.reading import Counters, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Answer = TypeVar("_Answer")
_Handle = Any  # NVML's handles have no type

_SLOWDOWNS = (
    (pynvml.nvmlClocksEventReasonSwPowerCap, "power cap"),
    (pynvml.nvmlClocksEventReasonHwSlowdown, "hardware slowdown"),
    (pynvml.nvmlClocksEventReasonSwThermalSlowdown, "thermal slowdown by software"),
    (pynvml.nvmlClocksEventReasonHwThermalSlowdown, "thermal slowdown by hardware"),
    (pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown, "power brake"),
)
_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_COMPUTE = (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2)
_GRAPHICS = (pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2)
# What a GPU of another kind or an older driver answers; any other error is the GPU's own.
_UNKNOWN = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_InvalidArgument,
    pynvml.NVMLError_NoPermission,
)


def read_conditions() -> dict[str, Reading]:
    """Return a reading of each GPU by UUID; one that fails a question has none, and the others are not affected."""
    readings = {}
    for index in range(gpu_count()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            readings[gpu_uuid(handle)] = read_condition(handle)
        except FAULTS:
            continue
    return readings


def _known(question: Callable[[], _Answer]) -> _Answer | None:
    try:
        return question()
    except _UNKNOWN:
        return None


def read_condition(handle: _Handle) -> Reading:
    """Return the reading of one GPU; raises NVMLError when it fails a question."""
    rows = _known(lambda: pynvml.nvmlDeviceGetRemappedRows(handle))
    pages = _known(lambda: pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
    ecc_mode = _known(lambda: pynvml.nvmlDeviceGetEccMode(handle))
    return Reading(
        counters=Counters(
            energy_mj=_known(lambda: int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))),
            volatile_corrected=_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),
            volatile_uncorrected=_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
        ),
        aggregate_uncorrected=_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
        ecc_mode_pending=ecc_mode is not None and ecc_mode[0] != ecc_mode[1],
        rows_pending=None if rows is None else bool(rows[2]),
        rows_failed=None if rows is None else bool(rows[3]),
        pages_pending=None if pages is None else bool(pages),
        links_active=_active_links(handle),
        slowdowns=_slowdowns(handle),
        processes=_processes(handle),
        slices=_slices(handle),
        recovery_action=_recovery_action(handle),
    )


def _slices(handle: _Handle) -> tuple[tuple[str, int | None], ...]:
    """Return the MIG devices of a GPU, and how many processes work on each."""
    mode = _known(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    if mode is None or not mode[0]:
        return ()
    count = _known(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0
    found = []
    for index in range(min(count, MAX_MIG_DEVICES)):
        device = ask(lambda index=index: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))  # type: ignore[misc] # bound at once
        uuid = None if device is None else ask(lambda device=device: str(pynvml.nvmlDeviceGetUUID(device)))  # type: ignore[misc] # bound at once
        if uuid is not None:
            found.append((uuid, _processes(device)))
    return tuple(found)


def _errors(handle: _Handle, kind: int, counter: int) -> int | None:
    return _known(lambda: int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter)))


def _active_links(handle: _Handle) -> int | None:
    """Count the links that are up; None without NVLink, and in MIG mode, which does not use it."""
    mode = _known(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    if mode is not None and mode[0]:
        return None
    states = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        is_active = _known(lambda link=link: bool(pynvml.nvmlDeviceGetNvLinkState(handle, link)))  # type: ignore[misc] # bound at once
        if is_active is None:
            break
        states.append(is_active)
    return sum(states) if states else None


def _slowdowns(handle: _Handle) -> tuple[str, ...]:
    reasons = _known(lambda: int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
    if reasons is None:  # its name before driver 535
        reasons = _known(lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))) or 0
    return tuple(name for bit, name in _SLOWDOWNS if reasons & bit)


def _recovery_action(handle: _Handle) -> int | None:
    answers = _known(lambda: pynvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_ACTION])) or ()
    return next((value for answer in answers if (value := value_of(answer)) is not None), None)


def _processes(handle: _Handle) -> int | None:
    """Count the processes on the GPU; None when it cannot be told, which is not the same as none.

    By the functions with a version: pynvml's other ones raise an error of no NVML class on older drivers.
    """
    compute, graphics = (_list(handle, questions) for questions in (_COMPUTE, _GRAPHICS))
    return None if compute is None else len(compute) + len(graphics or ())


def _list(handle: _Handle, questions: Sequence[Callable[[_Handle], list[object]]]) -> list[object] | None:
    answers = (_known(lambda question=question: question(handle)) for question in questions)  # type: ignore[misc] # bound at once
    return next((answer for answer in answers if answer is not None), None)
