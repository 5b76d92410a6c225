"""Defines the section `node.kubelet`: settings of the kubelet, by the names that its own configuration gives them."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc, text

OnOff = Literal["true", "false"]
NumaNode = Annotated[int, Meta(ge=0, le=1023)]
ServiceName = Annotated[
    str,
    text(
        r"[A-Za-z0-9][A-Za-z0-9:_.@-]*\.service",
        "a service of systemd: letters, digits and : _ . @ -, with .service at its end",
        "kubelet.service",
        longest=128,
    ),
]
CpuList = Annotated[
    str,
    text(
        "[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*",
        "a list of CPUs: numbers and ranges, separated by commas",
        "0-3,64-67",
        longest=255,
    ),
]
Quantity = Annotated[
    str,
    text(
        "[0-9]{1,12}([.][0-9]{1,3})?(m|k|Ki|M|Mi|G|Gi|T|Ti)?",
        "a quantity of Kubernetes: a number, and behind it m, k, Ki, M, Mi, G, Gi, T or Ti",
        "2Gi",
        longest=20,
    ),
]
Threshold = Annotated[
    str,
    text(
        "([0-9]{1,12}([.][0-9]{1,3})?(k|Ki|M|Mi|G|Gi|T|Ti)?|[0-9]{1,2}([.][0-9]{1,2})?%|100%)",
        "a threshold: a quantity of Kubernetes or a percentage",
        "500Mi",
        longest=20,
    ),
]
MemoryKind = Literal["memory", "hugepages-2Mi", "hugepages-1Gi"]
ReservedResource = Literal["cpu", "memory", "ephemeral-storage", "pid"]
EvictionSignal = Literal[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
]
CpuManagerOption = Literal[
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
]
TopologyManagerOption = Literal["prefer-closest-numa-nodes", "max-allowable-numa-nodes"]
OptionValue = Annotated[
    str, text("(true|false|[1-9][0-9]{0,2})", "an option's value: true, false or a number", "true", longest=5)
]


class TopologyManagerPolicy(Enum):
    """How strictly devices, CPUs and memory of a pod come from the same NUMA node."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyManagerScope(Enum):
    """What is aligned as one."""

    CONTAINER = "container"
    POD = "pod"


class CpuManagerPolicy(Enum):
    """Whether containers may have CPUs of their own."""

    NONE = "none"
    STATIC = "static"


class MemoryManagerPolicy(Enum):
    """Whether containers have memory of certain NUMA nodes; the kubelet writes these in upper case."""

    NONE = "None"
    STATIC = "Static"


class ReservedMemory(Section, frozen=True, kw_only=True):
    """Memory of a NUMA node that no container is given."""

    numa_node: Annotated[NumaNode, doc("Number of the NUMA node.")]
    limits: Annotated[
        dict[MemoryKind, Quantity],
        doc("What is reserved of it: memory, hugepages-2Mi, hugepages-1Gi."),
    ]


class Kubelet(Section, frozen=True, kw_only=True):
    """Settings of the node's kubelet; it keeps what is not declared."""

    unit: Annotated[ServiceName, doc("Service that the kubelet runs in.")] = "kubelet.service"
    topology_manager_policy: Annotated[
        TopologyManagerPolicy | None,
        doc("How strictly GPUs, CPUs and memory of a pod come from the same NUMA node; null: as it is."),
    ] = None
    topology_manager_scope: Annotated[
        TopologyManagerScope | None, doc("Whether that is about each container, or about the pod as a whole.")
    ] = None
    topology_manager_policy_options: Annotated[
        dict[TopologyManagerOption, OptionValue], doc("Options of the topology manager's policy, by name.")
    ] = msgspec.field(default_factory=dict)
    cpu_manager_policy: Annotated[
        CpuManagerPolicy | None,
        doc("static: containers of Guaranteed pods with whole CPUs have these for themselves; null: as it is."),
    ] = None
    cpu_manager_policy_options: Annotated[
        dict[CpuManagerOption, OnOff], doc("Options of the CPU manager's policy, by name.")
    ] = msgspec.field(default_factory=dict)
    memory_manager_policy: Annotated[
        MemoryManagerPolicy | None,
        doc("Static: memory of Guaranteed pods is of certain NUMA nodes; needs reservedMemory; null: as it is."),
    ] = None
    reserved_memory: Annotated[
        tuple[ReservedMemory, ...],
        doc("Memory of each NUMA node that the memory manager gives to nobody."),
    ] = ()
    reserved_system_cpus: Annotated[
        CpuList | None, doc("CPUs that the CPU manager gives to no container, in place of the number reserved.")
    ] = msgspec.field(default=None, name="reservedSystemCPUs")
    system_reserved: Annotated[
        dict[ReservedResource, Quantity], doc("What services of the system need, by resource.")
    ] = msgspec.field(default_factory=dict)
    kube_reserved: Annotated[
        dict[ReservedResource, Quantity], doc("What the kubelet and the container engine need, by resource.")
    ] = msgspec.field(default_factory=dict)
    eviction_hard: Annotated[
        dict[EvictionSignal, Threshold],
        doc("Thresholds at which pods are evicted; the kubelet has defaults only where it is told of none."),
    ] = msgspec.field(default_factory=dict)
