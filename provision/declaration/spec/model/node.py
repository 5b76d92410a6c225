"""Defines the section `node`: the Node object, the kubelet, the kernel and the GPUs' settings of the machine."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.gpu_settings import GpuSettings
from provision.declaration.spec.model.kubelet import Kubelet
from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import LabelKey, LabelValue

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
