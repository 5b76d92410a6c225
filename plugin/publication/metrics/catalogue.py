"""The table of every metric: name, kind, help and labels, and for a GPU's the reading it is made of.

Names, kinds, help texts and units of a GPU's metrics are those of NVIDIA's DCGM-exporter (`etc/default-counters.csv`
and `etc/dcp-metrics-included.csv` there), so that boards and rules written for it go on working; where NVML says them
is in the row. The three names of the kubelet's AcceleratorStats are cAdvisor's. `docs/metrics.md` has the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.publication.metrics.container_catalogue import CONTAINER_MEMORY
from plugin.publication.metrics.exposition import CLAIM_LABELS, POD_LABELS, Metric

if TYPE_CHECKING:
    from collections.abc import Callable

_MIB = 1 << 20


@dataclass(frozen=True)
class Conversion:
    """From NVML's unit to that of the name."""

    words: str
    apply: Callable[[float], float]


_AS_IS = Conversion("", lambda value: value)
_TO_MIB = Conversion("bytes to MiB, rounded down", lambda value: value // _MIB)
_TO_WATTS = Conversion("mW to W", lambda value: value / 1000)
_TO_RATIO = Conversion("percent to a ratio", lambda value: value / 100)
_TO_BYTES = Conversion("MiB to bytes, rounded down", lambda value: int(value * _MIB))

_PCIE_WORDS = "the PCIe bus - including both protocol headers and data payloads - in bytes per second."

INSTANCE_LABELS = ("GPU_I_PROFILE", "GPU_I_ID")  # of a GPU that is cut by MIG
GPU_LABELS = (
    *("gpu", "UUID", "pci_bus_id", "device", "modelName", *INSTANCE_LABELS, "Hostname", "DCGM_FI_DRIVER_VERSION"),
    *(*POD_LABELS, *CLAIM_LABELS),
)
ACCELERATOR_LABELS = ("acc_id", "make", "model", *POD_LABELS)


@dataclass(frozen=True)
class Reading:
    """One metric of a GPU: the field of `GpuTelemetry` it shows, and where NVML says it."""

    metric: Metric
    field: str
    nvml: str
    conversion: Conversion = _AS_IS


def _gauge(name: str, words: str, field: str, nvml: str, conversion: Conversion = _AS_IS) -> Reading:
    return Reading(Metric(f"DCGM_FI_DEV_{name}", "gauge", words, GPU_LABELS), field, nvml, conversion)


def _counter(name: str, words: str, field: str, nvml: str) -> Reading:
    return Reading(Metric(f"DCGM_FI_DEV_{name}", "counter", words, GPU_LABELS), field, nvml)


def _profiled(name: str, words: str, field: str, nvml: str, conversion: Conversion = _TO_RATIO) -> Reading:
    return Reading(Metric(f"DCGM_FI_PROF_{name}", "gauge", words, GPU_LABELS), field, f"GPM metric {nvml}", conversion)


def _field(number: int, name: str) -> str:
    return f"field {number} (NVML_FI_DEV_{name})"


GPU_METRICS = (
    _gauge("SM_CLOCK", "SM clock frequency (in MHz).", "sm_clock_mhz", "nvmlDeviceGetClockInfo (SM)"),
    _gauge("MEM_CLOCK", "Memory clock frequency (in MHz).", "memory_clock_mhz", "nvmlDeviceGetClockInfo (MEM)"),
    _gauge(
        "CLOCKS_EVENT_REASONS",
        "Current clock event reasons (bitmask).",
        "clock_event_reasons",
        "nvmlDeviceGetCurrentClocksEventReasons, before driver 535 nvmlDeviceGetCurrentClocksThrottleReasons",
    ),
    _gauge("MEMORY_TEMP", "Memory temperature (in C).", "memory_temperature_c", _field(82, "MEMORY_TEMP")),
    _gauge("GPU_TEMP", "GPU temperature (in C).", "temperature_c", "nvmlDeviceGetTemperature (GPU)"),
    _gauge("POWER_USAGE", "Power draw (in W).", "power_usage_mw", "nvmlDeviceGetPowerUsage", _TO_WATTS),
    _gauge(
        "POWER_MGMT_LIMIT",
        "Power management limit (in W).",
        "power_limit_mw",
        "nvmlDeviceGetEnforcedPowerLimit",
        _TO_WATTS,
    ),
    _counter(
        "TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since boot (in mJ).",
        "energy_mj",
        "nvmlDeviceGetTotalEnergyConsumption",
    ),
    _counter("PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "pcie_replays", _field(94, "PCIE_REPLAY_COUNTER")),
    _gauge("GPU_UTIL", "GPU utilization (in %).", "gpu_utilization_percent", "nvmlDeviceGetUtilizationRates (gpu)"),
    _gauge(
        "MEM_COPY_UTIL",
        "Memory utilization (in %).",
        "memory_utilization_percent",
        "nvmlDeviceGetUtilizationRates (memory)",
    ),
    _gauge("ENC_UTIL", "Encoder utilization (in %).", "encoder_utilization_percent", "nvmlDeviceGetEncoderUtilization"),
    _gauge("DEC_UTIL", "Decoder utilization (in %).", "decoder_utilization_percent", "nvmlDeviceGetDecoderUtilization"),
    _gauge(
        "XID_ERRORS", "Value of the last XID error encountered.", "last_xid", "events, since the start of the daemon"
    ),
    _gauge(
        "FB_FREE",
        "Framebuffer memory free (in MiB).",
        "memory_free_bytes",
        "nvmlDeviceGetMemoryInfo_v2 (free)",
        _TO_MIB,
    ),
    _gauge(
        "FB_USED",
        "Framebuffer memory used (in MiB).",
        "memory_used_bytes",
        "nvmlDeviceGetMemoryInfo_v2 (used)",
        _TO_MIB,
    ),
    _gauge(
        "FB_RESERVED",
        "Framebuffer memory reserved (in MiB).",
        "memory_reserved_bytes",
        "nvmlDeviceGetMemoryInfo_v2 (reserved)",
        _TO_MIB,
    ),
    _counter(
        "ECC_SBE_VOL_TOTAL",
        "Total number of single-bit volatile ECC errors.",
        "ecc_corrected_volatile",
        _field(3, "ECC_SBE_VOL_TOTAL"),
    ),
    _counter(
        "ECC_DBE_VOL_TOTAL",
        "Total number of double-bit volatile ECC errors.",
        "ecc_uncorrected_volatile",
        _field(4, "ECC_DBE_VOL_TOTAL"),
    ),
    _counter(
        "ECC_SBE_AGG_TOTAL",
        "Total number of single-bit persistent ECC errors.",
        "ecc_corrected_aggregate",
        _field(5, "ECC_SBE_AGG_TOTAL"),
    ),
    _counter(
        "ECC_DBE_AGG_TOTAL",
        "Total number of double-bit persistent ECC errors.",
        "ecc_uncorrected_aggregate",
        _field(6, "ECC_DBE_AGG_TOTAL"),
    ),
    _counter(
        "RETIRED_SBE",
        "Total number of retired pages due to single-bit errors.",
        "retired_pages_corrected",
        _field(29, "RETIRED_SBE"),
    ),
    _counter(
        "RETIRED_DBE",
        "Total number of retired pages due to double-bit errors.",
        "retired_pages_uncorrected",
        _field(30, "RETIRED_DBE"),
    ),
    _counter(
        "RETIRED_PENDING",
        "Total number of pages pending retirement.",
        "retired_pages_pending",
        _field(31, "RETIRED_PENDING"),
    ),
    _counter(
        "UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors",
        "remapped_rows_uncorrected",
        _field(143, "REMAPPED_UNC"),
    ),
    _counter(
        "CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors",
        "remapped_rows_corrected",
        _field(142, "REMAPPED_COR"),
    ),
    _gauge(
        "ROW_REMAP_FAILURE",
        "Whether remapping of rows has failed",
        "remapped_rows_failure",
        _field(145, "REMAPPED_FAILURE"),
    ),
    _gauge(
        "ROW_REMAP_PENDING",
        "Whether remapping of rows is pending",
        "remapped_rows_pending",
        _field(144, "REMAPPED_PENDING"),
    ),
    _counter(
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "Total number of NVLink flow-control CRC errors.",
        "nvlink_crc_flit_errors",
        _field(38, "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
    ),
    _counter(
        "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        "Total number of NVLink data CRC errors.",
        "nvlink_crc_data_errors",
        _field(45, "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
    ),
    _counter(
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "Total number of NVLink retries.",
        "nvlink_replays",
        _field(52, "NVLINK_REPLAY_ERROR_COUNT_TOTAL"),
    ),
    _counter(
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "Total number of NVLink recovery errors.",
        "nvlink_recoveries",
        _field(59, "NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
    ),
    _counter(
        "NVLINK_BANDWIDTH_TOTAL",
        "Total number of NVLink bandwidth counters for all lanes.",
        "nvlink_traffic_kib",
        "fields 138 and 139 (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _RX), all links, added",
    ),
    _profiled(
        "GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active.",
        "graphics_active_percent",
        "1 (GRAPHICS_UTIL)",
    ),
    _profiled(
        "PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        "tensor_active_percent",
        "5 (ANY_TENSOR_UTIL)",
    ),
    _profiled(
        "DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        "dram_active_percent",
        "10 (DRAM_BW_UTIL)",
    ),
    _profiled(
        "PCIE_TX_BYTES",
        f"The rate of data transmitted over {_PCIE_WORDS}",
        "pcie_sent_mib_s",
        "20 (PCIE_TX_PER_SEC)",
        _TO_BYTES,
    ),
    _profiled(
        "PCIE_RX_BYTES",
        f"The rate of data received over {_PCIE_WORDS}",
        "pcie_received_mib_s",
        "21 (PCIE_RX_PER_SEC)",
        _TO_BYTES,
    ),
)

# cAdvisor's, which the kubelet served as AcceleratorStats until 1.20: only of GPUs that a container has.
ACCELERATOR_METRICS = (
    Reading(
        Metric(
            "container_accelerator_duty_cycle",
            "gauge",
            "Percent of time over the past sample period during which the accelerator was actively processing.",
            ACCELERATOR_LABELS,
        ),
        "gpu_utilization_percent",
        "nvmlDeviceGetUtilizationRates (gpu)",
    ),
    Reading(
        Metric(
            "container_accelerator_memory_total_bytes",
            "gauge",
            "Total accelerator memory.",
            ACCELERATOR_LABELS,
        ),
        "memory_total_bytes",
        "nvmlDeviceGetMemoryInfo_v2 (total)",
    ),
    Reading(
        Metric(
            "container_accelerator_memory_used_bytes",
            "gauge",
            "Total accelerator memory allocated.",
            ACCELERATOR_LABELS,
        ),
        "memory_used_bytes",
        "nvmlDeviceGetMemoryInfo_v2 (used)",
    ),
)

BUILD_INFO = Metric("grapnel_build_info", "gauge", "Always 1; the version of the daemon is a label.", ("version",))
DRIVER_UP = Metric("grapnel_driver_up", "gauge", "Whether the driver answered the last time it was asked.")
RELEASED = Metric("grapnel_released", "gauge", "Whether the node is released: no GPU is offered until resume.")
REGISTERED = Metric("grapnel_kubelet_registered", "gauge", "Whether a kubelet knows of this node's GPUs.")
REGISTRATIONS = Metric(
    "grapnel_kubelet_registrations_total",
    "counter",
    "Registrations with a kubelet; all but the first are repeats.",
    ("resource",),
)
CONFIG_UP = Metric(
    "grapnel_config_up", "gauge", "Whether the configuration is that of the file; 0: it was refused, the former counts."
)
CONFIG_BY_LABEL = Metric("grapnel_config_by_label_up", "gauge", "Whether the node has the configuration of its label.")
DRIFT_DIFFERENCES = Metric(
    "grapnel_drift_differences",
    "gauge",
    "Differences between the node and what grapnel apply brought about on it.",
    ("kind",),
)
DRIFT_UP = Metric("grapnel_drift_up", "gauge", "Whether the node could be compared with it; 0 during a driver change.")
DRIFT_AT = Metric("grapnel_drift_timestamp_seconds", "gauge", "When it was compared last, in seconds since 1970.")
DEVICE_HEALTHY = Metric(
    "grapnel_device_healthy", "gauge", "Whether a pod may be given this GPU.", ("gpu", "UUID", "Hostname")
)
OTHER_UNITS = Metric(
    "grapnel_other_device_units", "gauge", "Units of other devices that are offered.", ("resource", "class", "state")
)
_PROCESS_LABELS = ("gpu", "UUID", *INSTANCE_LABELS, "Hostname")
_OWNER_LABELS = (*_PROCESS_LABELS, "owner")
PROCESSES = Metric(
    "grapnel_gpu_processes", "gauge", "Processes on a GPU by owner: pod, host (no pod), unknown.", _OWNER_LABELS
)
PROCESS_MEMORY = Metric(
    "grapnel_gpu_process_memory_bytes",
    "gauge",
    "Memory of the processes on a GPU by owner: pod, host (no pod), unknown.",
    _OWNER_LABELS,
)
UNGIVEN_PROCESSES = Metric(
    "grapnel_gpu_ungiven_processes",
    "gauge",
    "Processes of a pod on a GPU that the kubelet gave to none of its containers.",
    (*_PROCESS_LABELS, *POD_LABELS),
)
HEALTH_TRANSITIONS = Metric(
    "grapnel_health_transitions_total", "counter", "Times a GPU became healthy or unhealthy.", ("UUID", "to")
)
DEVICE_ALLOCATIONS = Metric(
    "grapnel_device_allocations_total", "counter", "Times an answer to Allocate gave a container the GPU.", ("UUID",)
)
RPC_DURATION = Metric(
    "grapnel_rpc_duration_seconds", "histogram", "Time to answer a call of the kubelet.", ("method", "code", "le")
)
TELEMETRY_UP = Metric(
    "grapnel_telemetry_up", "gauge", "Whether the driver's measurements are on this page; 0 while it does not answer."
)
POD_RESOURCES_UP = Metric(
    "grapnel_pod_resources_up", "gauge", "Whether the kubelet said who has which GPU; without it no pod is a label."
)

OWN_METRICS = (
    BUILD_INFO,
    DRIVER_UP,
    RELEASED,
    REGISTERED,
    REGISTRATIONS,
    CONFIG_UP,
    CONFIG_BY_LABEL,
    DRIFT_DIFFERENCES,
    DRIFT_UP,
    DRIFT_AT,
    DEVICE_HEALTHY,
    OTHER_UNITS,
    PROCESSES,
    PROCESS_MEMORY,
    UNGIVEN_PROCESSES,
    *CONTAINER_MEMORY,
    HEALTH_TRANSITIONS,
    DEVICE_ALLOCATIONS,
    RPC_DURATION,
    TELEMETRY_UP,
    POD_RESOURCES_UP,
)
