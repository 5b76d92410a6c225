"""Defines the section `plugin`: what of a node's GPUs is offered to the kubelet, and how the node daemon runs.

Names, shares and MIG strategy have NVIDIA's words (`api/config/v1` of its device plugin).
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import (
    AbsolutePath,
    ConfigName,
    DeviceClassName,
    DeviceClassSource,
    DeviceId,
    DnsLabel,
    GpuId,
    KubeconfigPath,
    ListenAddress,
    NamePatternText,
    ResourceName,
    SharedResourceName,
)

Replicas = Annotated[int, Meta(ge=2, le=1000)]
UnitMiB = Annotated[int, Meta(ge=1, le=1048576)]


GraceSeconds = Annotated[int, Meta(ge=10, le=86400)]


class LabelTarget(Enum):
    """Through what labels reach the Node."""

    AUTO = "auto"
    FILE = "file"
    NODE = "node"
    NODE_FEATURE = "nodeFeature"


class DaemonAs(Enum):
    """As what the node daemon runs."""

    UNIT = "unit"
    DAEMON_SET = "daemonset"


class GpuInterface(Enum):
    """Through what of Kubernetes pods are given GPUs."""

    DEVICE_PLUGIN = "devicePlugin"
    DRA = "dra"
    BOTH = "both"

    @property
    def other(self) -> GpuInterface:
        """The one that a node had before it has this one, where nobody has written that down."""
        return GpuInterface.DRA if self is GpuInterface.DEVICE_PLUGIN else GpuInterface.DEVICE_PLUGIN

    @property
    def has_claims(self) -> bool:
        """Whether claims are given GPUs, all or some."""
        return self is not GpuInterface.DEVICE_PLUGIN

    @property
    def words(self) -> str:
        """What gives the GPUs."""
        if self is GpuInterface.BOTH:
            return "the device plugin and claims"
        return "the device plugin" if self is GpuInterface.DEVICE_PLUGIN else "claims"


class MemoryOveruse(Enum):
    """What happens to a pod that uses more of a GPU's memory than its units."""

    REPORT = "report"
    EVICT = "evict"


class MemoryLimits(Enum):
    """Whether containers with units of a GPU's memory may start without a limit."""

    OFF = "off"
    PREFERRED = "preferred"
    REQUIRED = "required"


class MigStrategy(Enum):
    """How MIG devices are offered."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class AllocationPolicy(Enum):
    """Which of the shared devices a container gets."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class NamePattern(Section, frozen=True, kw_only=True):
    """Devices whose product or profile fits a pattern have a resource of their own."""

    pattern: Annotated[NamePatternText, doc("Whole name of a product, or MIG profile; '*' stands for anything.")]
    name: Annotated[SharedResourceName, doc("Resource that pods ask for; nvidia.com/ is put before a bare name.")]


class ResourceNames(Section, frozen=True, kw_only=True):
    """Names of resources; the first pattern that fits counts, and what none fits is not offered."""

    gpus: Annotated[tuple[NamePattern, ...], doc("By product, as grapnel-node devices shows it.")] = ()
    mig: Annotated[tuple[NamePattern, ...], doc("By MIG profile, with migStrategy: mixed.")] = ()


class Share(Section, frozen=True, kw_only=True):
    """Devices of a resource, each for several containers."""

    name: Annotated[SharedResourceName, doc("Resource whose devices are shared.")]
    replicas: Annotated[Replicas, doc("How many containers share a device.")]
    rename: Annotated[SharedResourceName | None, doc("Resource that shares are offered as; null: the same.")] = None
    devices: Annotated[
        tuple[DeviceId, ...], doc("Which devices, by index, index of GPU and MIG device (0:1), or UUID; empty: all.")
    ] = ()


class SharingStrategy(Section, frozen=True, kw_only=True):
    """What is shared in one way."""

    resources: Annotated[tuple[Share, ...], Meta(min_length=1), doc("What is shared, and by how many.")]
    rename_by_default: Annotated[bool, doc("Whether shares are offered under the name with .shared behind it.")] = False
    fail_requests_greater_than_one: Annotated[
        bool | None, doc("Whether a container may have one share alone; null: so through MPS, not so by time-slicing.")
    ] = None


class Sharing(Section, frozen=True, kw_only=True):
    """How devices are shared; a device in one way alone."""

    time_slicing: Annotated[SharingStrategy | None, doc("Containers take turns.")] = None
    mps: Annotated[
        SharingStrategy | None, doc("Side by side, through NVIDIA's Multi-Process Service, with ceilings.")
    ] = None


class MemoryUnits(Section, frozen=True, kw_only=True):
    """GPUs of a resource, offered as units of their memory."""

    resource: Annotated[ResourceName, doc("Resource that the units are offered as.")] = "aliyun.com/gpu-mem"
    of: Annotated[ResourceName, doc("Resource whose GPUs are divided.")] = "nvidia.com/gpu"
    devices: Annotated[tuple[DeviceId, ...], doc("Which of its GPUs, by index or UUID; empty: all.")] = ()
    unit_mib: Annotated[UnitMiB, doc("Memory of a unit, in MiB.")] = msgspec.field(name="unitMiB", default=1024)
    memory_mib: Annotated[
        UnitMiB | None,
        doc(
            "How much of each GPU's memory is offered, in MiB, and how much it has where the driver does not say; "
            "null: all, of which the machine says how much where the GPU has its memory."
        ),
    ] = msgspec.field(name="memoryMiB", default=None)


class PluginConfig(Section, frozen=True, kw_only=True):
    """What a configuration says that a label of the Node can name; its keys are those of `plugin`."""

    mig_strategy: Annotated[MigStrategy, doc("How MIG devices are offered.")] = MigStrategy.NONE
    resources: Annotated[ResourceNames, doc("Names of resources by product and by MIG profile.")] = msgspec.field(
        default_factory=ResourceNames
    )
    sharing: Annotated[Sharing, doc("GPUs and MIG devices that several containers share.")] = msgspec.field(
        default_factory=Sharing
    )
    shared_devices_allocation_policy: Annotated[AllocationPolicy, doc("Which shared GPU a container gets.")] = (
        AllocationPolicy.DISTRIBUTED
    )


class DeviceClass(Section, frozen=True, kw_only=True):
    """A kind of device other than NVIDIA's GPUs, whose file is written out."""

    name: Annotated[DeviceClassName, doc("Name of the file on the node.")]
    content: Annotated[str, Meta(max_length=65536), doc("The file's text.")]


class Plugin(Section, frozen=True, kw_only=True):
    """The node daemon, which offers the node's GPUs to the kubelet."""

    enabled: Annotated[bool, doc("Whether the node daemon runs.")] = True
    daemon: Annotated[
        DaemonAs,
        doc(
            "As what it runs; unit: as a service of the node; daemonset: as a pod of grapnel's DaemonSet, which is "
            "installed with the chart. Its files and commands are on the node either way."
        ),
    ] = DaemonAs.UNIT
    interface: Annotated[
        GpuInterface,
        doc(
            "Through what pods are given GPUs and other devices; devicePlugin: by numbers of a resource; dra: by "
            "dynamic resource allocation, as devices of the drivers gpu.nvidia.com and devices.grapnel.dev, which "
            "claims select (Kubernetes 1.34 or later); both: GPUs that claims names by claims, all else by numbers."
        ),
    ] = GpuInterface.DEVICE_PLUGIN
    claims: Annotated[
        tuple[GpuId, ...],
        Meta(max_length=64),
        doc(
            "With interface: both, which GPUs are given by claims, by index or UUID; indices count a node's GPUs by "
            "their PCI addresses, once for this list."
        ),
    ] = ()
    dynamic_mig: Annotated[
        bool,
        doc(
            "Have MIG devices made for claims, in any place that GPUs in MIG mode have for them, and destroyed after "
            "them: with interface: dra (Kubernetes 1.36 or later)."
        ),
    ] = False
    compute_domains: Annotated[
        bool,
        doc(
            "Give the node's IMEX channel to claims of ComputeDomains: with interface: dra or both, a service "
            "nvidia-imex of the node, and a controller with --compute-domains."
        ),
    ] = False
    resource: Annotated[ResourceName, doc("Resource that pods ask for to get a GPU.")] = "nvidia.com/gpu"
    kubelet_root: Annotated[AbsolutePath, doc("The kubelet's root directory on the node.")] = "/var/lib/kubelet"
    metrics_address: Annotated[
        ListenAddress | None, doc("Where the node daemon serves metrics to Prometheus; null: nowhere.")
    ] = None
    kubernetes_api: Annotated[
        KubeconfigPath | None,
        doc(
            "Kubeconfig on the node, such as the kubelet's, with which the node daemon puts labels, events and "
            "conditions on its Node object; null: it does not."
        ),
    ] = None
    labels: Annotated[
        LabelTarget,
        doc(
            "Through what labels reach the Node; file: the file of Node Feature Discovery; node: the Node itself; "
            "nodeFeature: a NodeFeature object; auto: the file where its folder is, and the Node with kubernetesApi."
        ),
    ] = LabelTarget.AUTO
    node_feature_namespace: Annotated[DnsLabel, doc("Namespace of the NodeFeature object.")] = "node-feature-discovery"
    memory_limits: Annotated[
        MemoryLimits,
        doc(
            "Whether the driver limits the memory of containers that were given units of it; preferred: where it can; "
            "required: none starts without its limit."
        ),
    ] = MemoryLimits.PREFERRED
    memory_overuse: Annotated[
        MemoryOveruse,
        doc(
            "What happens where the driver limits nothing, and a container uses more of a GPU's memory than its units; "
            "report: it is told; evict: its pod is evicted, too, with the kubelet's credentials."
        ),
    ] = MemoryOveruse.REPORT
    overuse_grace_seconds: Annotated[
        GraceSeconds, doc("How long it must use too much without a break before its pod is evicted.")
    ] = 120
    mig_strategy: Annotated[
        MigStrategy,
        doc(
            "How MIG devices are offered; none: a GPU in MIG mode counts as a whole one; single: as GPUs; "
            "mixed: each profile under its own name."
        ),
    ] = MigStrategy.NONE
    resources: Annotated[
        ResourceNames, doc("Names of resources by product and by MIG profile, instead of one for every GPU.")
    ] = msgspec.field(default_factory=ResourceNames)
    sharing: Annotated[Sharing, doc("GPUs and MIG devices that several containers share.")] = msgspec.field(
        default_factory=Sharing
    )
    shared_devices_allocation_policy: Annotated[
        AllocationPolicy,
        doc("Which shared GPU a container gets; distributed: one that the fewest have; packed: that the most have."),
    ] = AllocationPolicy.DISTRIBUTED
    configs: Annotated[
        dict[ConfigName, PluginConfig],
        Meta(max_length=64),
        doc(
            "Configurations by name, of which the Node's label nvidia.com/device-plugin.config names the one that "
            "counts instead of migStrategy, resources, sharing and sharedDevicesAllocationPolicy."
        ),
    ] = msgspec.field(default_factory=dict)
    default_config: Annotated[
        ConfigName | None, doc("Configuration of a Node without that label; null: those keys count.")
    ] = None
    device_classes: Annotated[
        tuple[DeviceClassSource | DeviceClass, ...],
        Meta(max_length=64),
        doc(
            "Other devices that are offered: names of classes that come with grapnel, and files NAME.json; a relative "
            "path: from the declaration."
        ),
    ] = ()
    memory_units: Annotated[tuple[MemoryUnits, ...], doc("GPUs that are offered as units of their memory.")] = ()

    @property
    def reaches_api(self) -> bool:
        """Whether the daemon asks the Kubernetes API: as a pod by its service account, else by a kubeconfig."""
        return self.daemon is DaemonAs.DAEMON_SET or self.kubernetes_api is not None
