"""What the driver measures of a GPU at one moment: plain values in NVML's own units.

None where this GPU, this driver or this mode (MIG) does not measure something. Not here: names and units of Prometheus.
"""

from __future__ import annotations

from typing import NamedTuple


class GpuProcess(NamedTuple):
    """A process on a GPU, by its id in the machine's own process namespace."""

    pid: int
    memory_used_bytes: int | None
    gpu_utilization_percent: int | None  # of the SMs


class GpuTelemetry(NamedTuple):
    """One GPU that answered. Percentages are of NVML's last sample period; counters are NVML's own.

    The last three are no metrics. A named tuple: the code that a frozen dataclass of so many fields generates weighs
    0.3 MiB more by itself.
    """

    uuid: str
    gpu_utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # without what the driver reserves, where NVML tells them apart
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    power_usage_mw: int | None = None
    power_limit_mw: int | None = None
    energy_mj: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_event_reasons: int | None = None  # nvmlClocksEventReason*, or-ed
    pcie_replays: int | None = None
    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    retired_pages_corrected: int | None = None
    retired_pages_uncorrected: int | None = None
    retired_pages_pending: int | None = None
    remapped_rows_corrected: int | None = None
    remapped_rows_uncorrected: int | None = None
    remapped_rows_pending: int | None = None
    remapped_rows_failure: int | None = None
    nvlink_crc_flit_errors: int | None = None
    nvlink_crc_data_errors: int | None = None
    nvlink_replays: int | None = None
    nvlink_recoveries: int | None = None
    nvlink_traffic_kib: int | None = None  # data of all links, both directions
    graphics_active_percent: float | None = None  # these five: of the time since the last time they were asked for
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    pcie_sent_mib_s: float | None = None  # by this GPU
    pcie_received_mib_s: float | None = None
    last_xid: int | None = None  # of the events since the daemon started
    processes: tuple[GpuProcess, ...] | None = None  # None also for a GPU that is cut: its instances have them
    instances: tuple[GpuInstance, ...] = ()  # of a GPU in MIG mode
    asked_at_s: float = 0.0  # CLOCK_BOOTTIME of before the processes were listed


class GpuInstance(NamedTuple):
    """A part of a GPU that is cut by MIG. `measured` has its memory and processes, and the UUID of the whole GPU."""

    number: int
    profile: str  # 1g.5gb, empty where the driver does not say
    device_uuids: tuple[str, ...]  # of the MIG devices (compute instances) in it
    measured: GpuTelemetry


class GroupMemory(NamedTuple):
    """Bytes that the processes of a control group may have together, None without a limit, and that they have."""

    limit_bytes: int | None
    used_bytes: int
