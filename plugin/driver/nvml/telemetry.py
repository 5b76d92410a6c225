"""What NVML measures of each GPU: some two dozen calls a GPU, one of them for all numbered fields.

Every question is asked by itself: one that fails leaves its field empty and no other. PCIe throughput is asked of GPM
alone: `nvmlDeviceGetPcieThroughput` measures it while the caller waits, 20 ms a direction. Not here: when to ask, and
what of it becomes a metric.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pynvml

from plugin.driver.nvml.instances import read_instances, read_memory
from plugin.driver.nvml.loading.trust import ask, gpu_count, gpu_uuid
from plugin.driver.nvml.processes import read_processes
from plugin.driver.nvml.profiling import LONGEST_S, Profiler
from plugin.driver.telemetry import GpuInstance, GpuTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# NVML_FI_DEV_* by number: nvidia-ml-py has not had all of them at all times.
_FIELDS = {
    3: "ecc_corrected_volatile",
    4: "ecc_uncorrected_volatile",
    5: "ecc_corrected_aggregate",
    6: "ecc_uncorrected_aggregate",
    29: "retired_pages_corrected",
    30: "retired_pages_uncorrected",
    31: "retired_pages_pending",
    38: "nvlink_crc_flit_errors",
    45: "nvlink_crc_data_errors",
    52: "nvlink_replays",
    59: "nvlink_recoveries",
    82: "memory_temperature_c",
    94: "pcie_replays",
    142: "remapped_rows_corrected",
    143: "remapped_rows_uncorrected",
    144: "remapped_rows_pending",
    145: "remapped_rows_failure",
}
_NVLINK_DATA_TX, _NVLINK_DATA_RX = 138, 139
_EVERY_LINK = 0xFFFFFFFF  # as the scope of a field of links
_NO_SCOPE = 0
_MEMBERS = {  # of the value's union, by NVML_VALUE_TYPE_*
    1: "uiVal",
    2: "ulVal",
    3: "ullVal",
    4: "sllVal",
    5: "siVal",
    6: "usVal",
}


def _whole(question: Callable[[], Any]) -> int | None:
    answer = ask(question)
    return None if answer is None else int(answer)


def _first(question: Callable[[], Any]) -> int | None:
    """Return the utilisation of an engine, which comes with the length of its sample period."""
    return _whole(lambda: question()[0])


def _utilization(handle: Any) -> dict[str, int]:
    rates = ask(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    if rates is None:
        return {}
    return {"gpu_utilization_percent": int(rates.gpu), "memory_utilization_percent": int(rates.memory)}


def _clock_event_reasons(handle: Any) -> int | None:
    """Return the bits; the function had another name before driver 535."""
    reasons = _whole(lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    return reasons if reasons is not None else _whole(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def value_of(answer: Any) -> int | None:
    """Return the number of one field, None where it has none or is no whole number."""
    member = _MEMBERS.get(int(answer.valueType))
    if answer.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    return int(getattr(answer.value, member))


def _fields(handle: Any) -> dict[str, int]:
    asked = [
        *((number, _NO_SCOPE) for number in _FIELDS),
        (_NVLINK_DATA_TX, _EVERY_LINK),
        (_NVLINK_DATA_RX, _EVERY_LINK),
    ]
    answers: Iterable[Any] = ask(lambda: pynvml.nvmlDeviceGetFieldValues(handle, asked)) or ()
    numbers = {int(answer.fieldId): value for answer in answers if (value := value_of(answer)) is not None}
    found = {name: numbers[number] for number, name in _FIELDS.items() if number in numbers}
    if _NVLINK_DATA_TX in numbers and _NVLINK_DATA_RX in numbers:
        found["nvlink_traffic_kib"] = numbers[_NVLINK_DATA_TX] + numbers[_NVLINK_DATA_RX]
    return found


def _instances(handle: Any, uuid: str, profiler: Profiler) -> Iterator[GpuInstance]:
    for each in read_instances(handle, uuid):
        yield each._replace(measured=each.measured._replace(**profiler.read_instance(handle, uuid, each)))


def _read_gpu(handle: Any, profiler: Profiler) -> GpuTelemetry | None:
    uuid = ask(lambda: gpu_uuid(handle))
    if uuid is None:
        return None
    asked_at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    instances = tuple(_instances(handle, uuid, profiler))
    return GpuTelemetry(
        uuid,
        encoder_utilization_percent=_first(lambda: pynvml.nvmlDeviceGetEncoderUtilization(handle)),
        decoder_utilization_percent=_first(lambda: pynvml.nvmlDeviceGetDecoderUtilization(handle)),
        temperature_c=_whole(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        power_usage_mw=_whole(lambda: pynvml.nvmlDeviceGetPowerUsage(handle)),
        power_limit_mw=_whole(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
        energy_mj=_whole(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
        sm_clock_mhz=_whole(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        memory_clock_mhz=_whole(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
        clock_event_reasons=_clock_event_reasons(handle),
        **read_memory(handle),
        **_utilization(handle),
        **_fields(handle),
        **profiler.read_gpu(handle, uuid, is_cut=bool(instances)),
        processes=None if instances else read_processes(handle),
        instances=instances,
        asked_at_s=asked_at_s,
    )


def _read(profiler: Profiler) -> tuple[GpuTelemetry, ...] | None:
    profiler.forget_old()
    count = ask(gpu_count)
    if count is None:
        return None
    handles = (ask(lambda index=index: pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count))  # type: ignore[misc] # bound at once
    answers = (ask(lambda handle=handle: _read_gpu(handle, profiler)) for handle in handles if handle is not None)  # type: ignore[misc] # bound at once
    return tuple(answer for answer in answers if answer is not None)


class TelemetryReader:
    """Asks every GPU, and keeps what profiling needs from one time to the next. `clock` is monotonic seconds.

    Used in the thread of the session, of whose beginning and end it must hear (`library.Follower`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._profiler = Profiler(clock)
        self._asked_at_s = float("-inf")

    def read(self) -> tuple[GpuTelemetry, ...] | None:
        """Ask every GPU within the session that is open; None without one."""
        self._asked_at_s = self._clock()
        return _read(self._profiler)

    def session_begins(self) -> None:
        """Take the first samples at once if they were asked for lately.

        While a GPU is missing, a new session begins every few seconds: the next question might find none of its own.
        """
        if self._clock() - self._asked_at_s <= LONGEST_S:
            _read(self._profiler)

    def session_ends(self) -> None:
        """Give back what the library lent."""
        self._profiler.close()
