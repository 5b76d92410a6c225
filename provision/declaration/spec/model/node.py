"""Defines the section `node`: the Node object, the kubelet, the kernel and the GPUs' settings of the machine."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.kubelet import Kubelet
from provision.declaration.spec.model.mig import GpuIndex
from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import DeviceFilter, LabelKey, LabelValue

PageSize = Literal["2Mi", "1Gi"]
PageCount = Annotated[int, Meta(ge=0, le=1 << 24)]


class TaintEffect(Enum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Iommu(Enum):
    """What the kernel is told about the IOMMU when it boots."""

    ENABLED = "enabled"
    PASSTHROUGH = "passthrough"
    DISABLED = "disabled"


class Taint(Section, frozen=True, kw_only=True):
    """A taint of the Kubernetes node."""

    key: Annotated[LabelKey, doc("Key of the taint.")]
    value: Annotated[LabelValue, doc("Value of the taint.")] = ""
    effect: Annotated[TaintEffect, doc("What happens to pods that do not tolerate the taint.")]


class Kernel(Section, frozen=True, kw_only=True):
    """Settings of the node's kernel; it keeps what is not declared."""

    numa_balancing: Annotated[
        bool | None, doc("Whether the kernel moves memory between NUMA nodes by itself; null: as it is.")
    ] = None
    hugepages: Annotated[
        dict[PageSize, PageCount],
        doc("Number of huge pages by size; 2Mi: at run time; 1Gi: at boot, which takes a reboot."),
    ] = msgspec.field(default_factory=dict)
    iommu: Annotated[
        Iommu | None, doc("What the kernel is told about the IOMMU at boot, which takes a reboot; null: as it is.")
    ] = None


Megahertz = Annotated[int, Meta(ge=1, le=99_999)]
Watts = Annotated[int, Meta(ge=1, le=99_999)]


class ComputeMode(Enum):
    """Who may compute on a GPU, in NVIDIA's words."""

    DEFAULT = "DEFAULT"
    EXCLUSIVE_PROCESS = "EXCLUSIVE_PROCESS"


class Clocks(Section, frozen=True, kw_only=True):
    """Between which values a clock is locked."""

    min: Annotated[Megahertz, doc("The lowest clock, in MHz.")]
    max: Annotated[Megahertz, doc("The highest clock, in MHz.")]


class GpuSettings(Section, frozen=True, kw_only=True):
    """What some of a node's GPUs are set to; they keep what is not declared."""

    devices: Annotated[
        Literal["all"] | tuple[GpuIndex, ...], doc("Which GPUs: all, or a list of indices as nvidia-smi has.")
    ]
    device_filter: Annotated[
        tuple[DeviceFilter, ...],
        doc("PCI ids of the GPUs that the entry is for: device and vendor, and behind ':' subsystem; empty: any."),
    ] = ()
    persistence_mode: Annotated[
        bool | None, doc("Whether the driver keeps GPUs initialized while nobody uses them; null: as it is.")
    ] = None
    compute_mode: Annotated[
        ComputeMode | None, doc("Whether one process at a time may compute on a GPU, or many; null: as it is.")
    ] = None
    power_limit_watts: Annotated[Watts | None, doc("The most that a GPU draws, in watts; null: as it is.")] = None
    graphics_clock: Annotated[
        Clocks | None, doc("Between which values the clock of the processors is locked; null: as it is.")
    ] = msgspec.field(name="graphicsClockMHz", default=None)
    memory_clock: Annotated[
        Clocks | None, doc("Between which values the memory's clock is locked; null: as it is.")
    ] = msgspec.field(name="memoryClockMHz", default=None)


class Node(Section, frozen=True, kw_only=True):
    """The Kubernetes Node object of the machine, its kubelet, its kernel and what its GPUs are set to."""

    labels: Annotated[dict[LabelKey, LabelValue], doc("Labels to set on the Node object.")] = msgspec.field(
        default_factory=dict
    )
    taints: Annotated[tuple[Taint, ...], doc("Taints to set on the Node object.")] = ()
    kubelet: Annotated[Kubelet, doc("Settings of the node's kubelet, which keeps what is not declared.")] = Kubelet()
    kernel: Annotated[Kernel, doc("Settings of the node's kernel, which keeps what is not declared.")] = Kernel()
    gpus: Annotated[
        tuple[GpuSettings, ...], doc("What the node's GPUs are set to; of several entries the last with a key counts.")
    ] = ()
