"""Describes the simulated machine as values: the Python half of src/machine.h, field for field.

GPU models are in models.py, the text format in text.py.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any

NO_INSTANCE = 0xFFFFFFFF  # what NVML says where an event is of no instance
MIB = 1 << 20
GIB = 1 << 30


def _many(item: str) -> Any:
    """Declare a list whose elements are called `item` in paths: `gpu0.process1.pid`."""
    return field(default=(), metadata={"item": item})


class Check(StrEnum):
    """Whether the library checks the machine that it really runs on."""

    CHECK = "check"
    IGNORE = "ignore"


class Brand(IntEnum):
    """NVML_BRAND_*."""

    UNKNOWN = 0
    TESLA = 2
    GEFORCE = 5
    NVIDIA_RTX = 13
    NVIDIA = 14


class Architecture(IntEnum):
    """NVML_DEVICE_ARCH_*."""

    VOLTA = 5
    TURING = 6
    AMPERE = 7
    ADA = 8
    HOPPER = 9
    BLACKWELL = 10


class ProcessKind(IntEnum):
    """Which of NVML's lists a process is in."""

    COMPUTE = 0
    GRAPHICS = 1
    MPS = 2


class NvLinkRemote(IntEnum):
    """NVML_NVLINK_DEVICE_TYPE_*: what is at the other end of a link."""

    GPU = 0
    SWITCH = 2


class RecoveryAction(IntEnum):
    """NVML_GPU_RECOVERY_ACTION_*: the recovery that the driver requests."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4


class FabricState(IntEnum):
    """NVML_GPU_FABRIC_STATE_*."""

    NOT_SUPPORTED = 0
    NOT_STARTED = 1
    IN_PROGRESS = 2
    COMPLETED = 3


@dataclass(frozen=True)
class Process:
    """A process that uses a GPU; `memory_used` in bytes, `sm_utilization` in percent of the last sample period."""

    pid: int = 0
    memory_used: int = 0
    graphics: int = ProcessKind.COMPUTE
    sm_utilization: int = 0


@dataclass(frozen=True)
class Link:
    """One NVLink of a GPU; an inactive link still exists."""

    active: bool = True
    remote_pci: str = ""
    remote_type: int = NvLinkRemote.GPU
    version: int = 3


@dataclass(frozen=True)
class Activity:
    """How busy parts of a GPU or a GPU instance are, in hundredths of a percent: what GPM measures."""

    graphics: int = 0
    tensor: int = 0
    dram: int = 0


@dataclass(frozen=True)
class Mig:
    """A MIG device; memory in bytes, placement in memory slices, the rest are counts of its own or shared resources."""

    index: int = 0
    uuid: str = ""
    profile: str = "1g.5gb"
    gpu_instance: int = 0
    compute_instance: int = 0
    placement_start: int = 0
    placement_size: int = 1
    memory_total: int = 0
    memory_used: int = 0
    multiprocessors: int = 0
    gpu_slices: int = 1
    compute_slices: int = 1
    copy_engines: int = 1
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0
    activity: Activity = field(default_factory=Activity)
    processes: tuple[Process, ...] = _many("process")


@dataclass(frozen=True)
class Ecc:
    """ECC mode, and the error counters of device memory."""

    supported: bool = True
    enabled: bool = True
    pending: bool = True
    volatile_corrected: int = 0
    volatile_uncorrected: int = 0
    aggregate_corrected: int = 0
    aggregate_uncorrected: int = 0


@dataclass(frozen=True)
class RemappedRows:
    """Memory rows remapped to spare ones."""

    supported: bool = True
    corrected: int = 0
    uncorrected: int = 0
    pending: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory in bytes, power in milliwatts, clocks in MHz, temperatures in degrees Celsius.

    Two GPUs with the same `board`, `pcie_switch`, `pcie_switch_tree`, `host_bridge` or `numa_node` share that thing,
    which decides their PCIe topology level. `fabric_cluster` is a UUID; it and the clique are reported once the
    state is COMPLETED.
    """

    name: str = "NVIDIA A100-SXM4-40GB"
    uuid: str = ""
    serial: str = ""
    vbios: str = "92.00.45.00.03"
    pci_address: str = "0000:10:00.0"
    pci_device_id: int = 0
    pci_subsystem_id: int = 0
    minor_number: int = 0
    brand: int = Brand.NVIDIA
    architecture: int = Architecture.AMPERE
    compute_major: int = 8
    compute_minor: int = 0
    cores: int = 6912
    numa_node: int = 0
    board: int = 0
    pcie_switch: int = 0
    pcie_switch_tree: int = 0
    host_bridge: int = 0
    pcie_generation: int = 4
    pcie_width: int = 16
    pcie_replays: int = 0
    p2p_status: int = 0
    fabric_state: int = FabricState.NOT_SUPPORTED
    fabric_cluster: str = ""
    fabric_clique: int = 0
    memory_total: int = 40 * GIB
    memory_used: int = 0
    memory_reserved: int = 500 * MIB
    bar1_total: int = 64 * GIB
    bar1_used: int = 1 * MIB
    temperature: int = 30
    memory_temperature: int = 32
    temperature_slowdown: int = 89
    temperature_shutdown: int = 92
    power_usage_mw: int = 50_000
    power_limit_mw: int = 400_000
    power_limit_default_mw: int = 400_000
    power_limit_min_mw: int = 100_000
    power_limit_max_mw: int = 400_000
    energy_mj: int = 0
    nvlink_sent_kib: int = 0
    nvlink_received_kib: int = 0
    clock_sm: int = 210
    clock_memory: int = 1215
    clock_video: int = 585
    clock_sm_max: int = 1410
    clock_memory_max: int = 1215
    clock_video_max: int = 1290
    clock_sm_locked_min: int = 0
    clock_sm_locked_max: int = 0
    clock_memory_locked_min: int = 0
    clock_memory_locked_max: int = 0
    clock_event_reasons: int = 1
    performance_state: int = 0
    utilization: int = 0
    memory_utilization: int = 0
    encoder_utilization: int = 0
    decoder_utilization: int = 0
    pcie_sent_kib_s: int = 0
    pcie_received_kib_s: int = 0
    activity: Activity = field(default_factory=Activity)
    persistence_mode: bool = True
    compute_mode: int = 0
    recovery_action: int = 0
    ecc: Ecc = field(default_factory=Ecc)
    remapped_rows: RemappedRows = field(default_factory=RemappedRows)
    mig_capable: bool = False
    mig_enabled: bool = False
    mig_pending: bool = False
    processes: tuple[Process, ...] = _many("process")
    links: tuple[Link, ...] = _many("link")
    migs: tuple[Mig, ...] = _many("mig")


@dataclass(frozen=True)
class Event:
    """An XID error of the GPU with this index; `sequence` increases over the machine's life.

    The instances are those that the driver blames.
    """

    sequence: int = 0
    gpu: int = 0
    xid: int = 0
    gpu_instance: int = NO_INSTANCE
    compute_instance: int = NO_INSTANCE


@dataclass(frozen=True)
class Failure:
    """NVML's `function` (without _v2; `*` for every one) fails with `code`, for one GPU index or (-1) always.

    CUDA functions fail with CUDA's codes; -1 is a call that never returns, -2 a copy that returns other data.
    A failure of one `driver` version is not there with another; empty: it is there with every one.
    """

    function: str = "*"
    gpu: int = -1
    code: int = 999
    driver: str = ""


@dataclass(frozen=True)
class MemoryLimit:
    """Bytes of one GPU that the processes of a control group may have.

    `cgroup` is the inode of its folder, `path` where that is below `cgroup_root`.
    """

    gpu: int = 0
    cgroup: int = 0
    path: str = ""
    soft: int = 0
    hard: int = 0


@dataclass(frozen=True)
class Machine:
    """A machine with GPUs.

    Empty `driver_version`: taken from the library's file name. `cuda_version` 0: derived from the driver branch.
    With `module: check` the library compares itself with `<sys_root>/module/nvidia/version`, or with `module_version`
    (`none`: not loaded, empty: the same) where that is the real sysfs, as in a node's containers; with `devices: check`
    a GPU only exists if `<dev_root>/nvidia<minor_number>` may be opened. Each call takes `call_cost_us`.

    Drivers of branch `memory_limits_from` and later (0: none) keep memory limits of control groups, which are those of
    cgroup v2 below `cgroup_root`.

    MIG instances that were made through NVML are those of one load of the module, `mig_load`, and gone after another.
    So are the settings of GPUs, of `settings_load`; locked clocks are 0 where none are locked.
    """

    driver_version: str = ""
    cuda_version: int = 0
    module: str = Check.IGNORE
    module_version: str = ""
    devices: str = Check.IGNORE
    sys_root: str = "/sys"
    dev_root: str = "/dev"
    cgroup_root: str = "/sys/fs/cgroup"
    call_cost_us: int = 0
    memory_limits_from: int = 615
    mig_load: int = 0
    settings_load: int = 0
    gpus: tuple[Gpu, ...] = _many("gpu")
    events: tuple[Event, ...] = _many("event")
    failures: tuple[Failure, ...] = _many("failure")
    limits: tuple[MemoryLimit, ...] = _many("limit")

    def with_gpu(self, index: int, **changes: Any) -> Machine:
        """Return the machine with some fields of one GPU changed."""
        gpus = list(self.gpus)
        gpus[index] = replace(gpus[index], **changes)
        return replace(self, gpus=tuple(gpus))

    def with_xid(self, gpu: int, xid: int, mig: Mig | None = None) -> Machine:
        """Return the machine with one more XID event, of one MIG device: processes that wait for events receive it."""
        last = max((event.sequence for event in self.events), default=0)
        blamed = (NO_INSTANCE, NO_INSTANCE) if mig is None else (mig.gpu_instance, mig.compute_instance)
        events = (*self.events, Event(last + 1, gpu, xid, *blamed))
        return replace(self, events=events[-MAX_EVENTS:])

    def with_failure(self, function: str, code: int, gpu: int = -1, driver: str = "") -> Machine:
        """Return the machine in which a function fails."""
        return replace(self, failures=(*self.failures, Failure(function, gpu, code, driver)))

    def without_failures(self) -> Machine:
        """Return the machine in which nothing fails that was made to."""
        return replace(self, failures=())

    def with_gpu_lost(self, gpu: int) -> Machine:
        """Return the machine in which every call about this GPU fails with GPU_IS_LOST."""
        return self.with_failure("*", GPU_IS_LOST, gpu)


NOT_SUPPORTED, GPU_IS_LOST = 3, 15
CUDA_HANGS, CUDA_WRONG_DATA = -1, -2
MAX_EVENTS = 64
"""The number of events that src/machine.h keeps; older ones are dropped."""


def item_name(of: dataclasses.Field[Any]) -> str | None:
    """Return the name of this field's elements in paths, or None if the field is not a list."""
    name: str | None = of.metadata.get("item")
    return name
