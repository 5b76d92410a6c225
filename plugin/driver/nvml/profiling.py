"""What profilers count on a GPU or an instance of it, through NVML's GPM (Hopper and later).

GPM compares two samples, at least 100 ms apart. The earlier one is kept from one question to the next, so that nothing
waits and nothing is sampled while it is not asked for: a value is the average of the time since the last question.
Samples are memory of the library, and given back before the session ends. Not here: when to ask, and Prometheus.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pynvml

from plugin.driver.nvml.loading.trust import FAULTS, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.driver.telemetry import GpuInstance

Values: TypeAlias = "Mapping[str, Any]"  # by their fields of `GpuTelemetry`
SHORTEST_S = 0.1  # NVML documents no result for less
LONGEST_S = 600.0  # who asks less often is not watching: Prometheus forgets a value after 5 minutes


class _Metric(NamedTuple):
    """A field of `GpuTelemetry`, and more than it can be: counters that began again give far more."""

    field: str
    limit: float


_METRICS = {  # by NVML_GPM_METRIC_*
    1: _Metric("graphics_active_percent", 200),
    5: _Metric("tensor_active_percent", 200),
    10: _Metric("dram_active_percent", 200),
    20: _Metric("pcie_sent_mib_s", 1 << 20),
    21: _Metric("pcie_received_mib_s", 1 << 20),
}
_OF_GPU = tuple(_METRICS)
_OF_INSTANCE = (1, 5, 10)  # DCGM has no PCIe traffic of an instance either: it has no meaning there (NVIDIA/DCGM #88)
_REFUSALS = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NoPermission)


class _Kept(NamedTuple):
    """The last sample of one thing, and what was measured up to it."""

    sample: Any
    taken_at_s: float
    values: Values


class Profiler:
    """Keeps one sample of each GPU and each instance. Used in the thread of the session; `clock` is monotonic seconds.

    An instance whose MIG devices are others than last time is not compared with what had its number then.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._supported: dict[str, bool] = {}  # by UUID; both are of this session
        self._refused: set[tuple[object, ...]] = set()
        self._kept: dict[tuple[object, ...], _Kept] = {}

    def read_gpu(self, handle: Any, uuid: str, *, is_cut: bool) -> Values:
        """Return what was measured since the last time; nothing the first time."""
        if not self._is_supported(handle, uuid):
            return {}
        return self._measure((uuid, is_cut), lambda sample: pynvml.nvmlGpmSampleGet(handle, sample), _OF_GPU)

    def read_instance(self, handle: Any, uuid: str, instance: GpuInstance) -> Values:
        """Return the same of an instance of the GPU that `handle` is."""
        if not self._is_supported(handle, uuid):
            return {}
        key = (uuid, instance.number, *instance.device_uuids)
        number = instance.number
        return self._measure(key, lambda sample: pynvml.nvmlGpmMigSampleGet(handle, number, sample), _OF_INSTANCE)

    def forget_old(self) -> None:
        """Give back samples of long ago: of instances that are gone, and all of them if none was asked for since."""
        now_s = self._clock()
        for key in [key for key, kept in self._kept.items() if now_s - kept.taken_at_s > LONGEST_S]:
            _free(self._kept.pop(key).sample)

    def close(self) -> None:
        """Give back every sample, and forget what this session's driver refused."""
        while self._kept:
            _free(self._kept.popitem()[1].sample)
        self._supported.clear()
        self._refused.clear()

    def _is_supported(self, handle: Any, uuid: str) -> bool:
        """Ask once per session, and again only where there was no answer."""
        known = self._supported.get(uuid)
        if known is None:
            try:
                known = bool(pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
            except _REFUSALS:
                known = False
            except FAULTS:
                return False
            self._supported[uuid] = known
        return known

    def _measure(self, key: tuple[object, ...], take: Callable[[Any], object], numbers: tuple[int, ...]) -> Values:
        now_s, kept = self._clock(), self._kept.get(key)
        if kept is not None and now_s - kept.taken_at_s < SHORTEST_S:
            return kept.values
        sample = None if key in self._refused else self._sample(key, take)
        if sample is None:
            return {}
        taken_at_s = self._clock()  # afterwards: the next one is not less than SHORTEST_S later by NVML's clock either
        values: Values = {}
        if kept is not None:
            values = _compare(kept.sample, sample, numbers)
            _free(kept.sample)
        self._kept[key] = _Kept(sample, taken_at_s, values)
        return values

    def _sample(self, key: tuple[object, ...], take: Callable[[Any], object]) -> Any | None:
        """Return a new sample, or None; the driver is asked again unless it does not know how."""
        sample = ask(pynvml.nvmlGpmSampleAlloc)
        if sample is None:
            return None
        try:
            take(sample)
        except FAULTS as error:
            _free(sample)
            if isinstance(error, _REFUSALS):
                self._refused.add(key)
            return None
        return sample


def _free(sample: Any) -> None:
    ask(lambda: pynvml.nvmlGpmSampleFree(sample))


def _compare(earlier: Any, later: Any, numbers: tuple[int, ...]) -> Values:
    """Return what was done between two samples, without what the driver has no number for."""
    question = pynvml.c_nvmlGpmMetricsGet_t()
    question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    question.numMetrics = len(numbers)
    question.sample1, question.sample2 = earlier, later
    for position, number in enumerate(numbers):
        question.metrics[position].metricId = number
    if ask(lambda: pynvml.nvmlGpmMetricsGet(question)) is None:
        return {}
    answers = ((_METRICS[number], question.metrics[position]) for position, number in enumerate(numbers))
    return {
        metric.field: float(answer.value)
        for metric, answer in answers
        if answer.nvmlReturn == pynvml.NVML_SUCCESS and 0 <= answer.value <= metric.limit  # which NaN is not either
    }
