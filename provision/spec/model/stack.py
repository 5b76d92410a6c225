"""Defines the declaration and its sections; the driver's section is beside it."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from provision.spec.model.driver import Driver
from provision.spec.model.section import Section, doc
from provision.spec.model.texts import (
    AbsolutePath,
    DnsLabel,
    GroupName,
    HostName,
    KubeconfigPath,
    LabelKey,
    LabelValue,
    ListenAddress,
    Percent,
    ResourceName,
    WaveName,
)

API_VERSION: Final = "grapnel.dev/v1alpha1"
KIND: Final = "GpuStack"

Count = Annotated[int, Meta(ge=1, le=100_000)]


class Engine(Enum):
    """The container engine of a node."""

    CONTAINERD = "containerd"
    CRIO = "crio"
    DOCKER = "docker"
    PODMAN = "podman"


class Entitlement(Enum):
    """What gives a container its GPU."""

    KUBELET = "kubelet"
    ENV = "env"


class TaintEffect(Enum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Gate(Enum):
    """What has to be true of a wave before the next one begins."""

    HEALTHY = "healthy"
    HOLD = "hold"


class Metadata(Section, frozen=True, kw_only=True):
    """Names the declaration."""

    name: Annotated[DnsLabel, doc("What messages and reports call this declaration.")] = "default"


class Runtime(Section, frozen=True, kw_only=True):
    """The container engine, and how a container gets a GPU from it."""

    enabled: Annotated[
        bool, doc("Whether grapnel configures a container engine; false: it leaves engines and containers alone.")
    ] = True
    engine: Annotated[Engine, doc("The node's container engine.")] = Engine.CONTAINERD
    install: Annotated[bool, doc("Whether to install the distribution's engine where there is none.")] = True
    handler: Annotated[DnsLabel, doc("Runtime handler to add to the engine; a RuntimeClass refers to it.")] = "nvidia"
    entitlement: Annotated[
        Entitlement,
        doc(
            "What gives a container its GPU; kubelet: what the device plugin allocated; "
            "env: NVIDIA_VISIBLE_DEVICES, where every image is trusted."
        ),
    ] = Entitlement.KUBELET


class Plugin(Section, frozen=True, kw_only=True):
    """The node daemon, which offers the node's GPUs to the kubelet."""

    enabled: Annotated[bool, doc("Whether the node daemon runs.")] = True
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


class Taint(Section, frozen=True, kw_only=True):
    """A taint of the Kubernetes node."""

    key: Annotated[LabelKey, doc("Key of the taint.")]
    value: Annotated[LabelValue, doc("Value of the taint.")] = ""
    effect: Annotated[TaintEffect, doc("What happens to pods that do not tolerate the taint.")]


class Node(Section, frozen=True, kw_only=True):
    """The Kubernetes Node object of the machine."""

    labels: Annotated[dict[LabelKey, LabelValue], doc("Labels to set on the Node object.")] = msgspec.field(
        default_factory=dict
    )
    taints: Annotated[tuple[Taint, ...], doc("Taints to set on the Node object.")] = ()


class Tenancy(Section, frozen=True, kw_only=True):
    """Who may use the GPUs."""

    namespaces: Annotated[
        tuple[DnsLabel, ...],
        doc("Namespaces whose pods may have GPUs; an empty list: all of them.", uniqueItems=True),
    ] = ()


class Wave(Section, frozen=True, kw_only=True):
    """Some of the nodes of a rollout, which are changed before any node of the next wave begins."""

    name: Annotated[WaveName | None, doc("What messages call the wave; null: its number.")] = None
    size: Annotated[
        Count | Percent | None,
        doc(
            "How many nodes: a number, or a percentage that is rounded up; null: all that groups and hosts select, and "
            "in the last wave all that are left."
        ),
    ] = None
    groups: Annotated[
        tuple[GroupName, ...], doc("Groups of the inventory whose hosts are in the wave.", uniqueItems=True)
    ] = ()
    hosts: Annotated[tuple[HostName, ...], doc("Hosts of the inventory that are in the wave.", uniqueItems=True)] = ()
    soak_minutes: Annotated[
        Annotated[int, Meta(ge=0, le=10_080)],
        doc("How long all of its nodes must stay healthy before the next wave begins."),
    ] = 0
    gate: Annotated[
        Gate,
        doc(
            "What ends the wave; healthy: its changed nodes are ready and not cordoned by others; hold: the same, and "
            "this key is taken away."
        ),
    ] = Gate.HEALTHY


class Rollout(Section, frozen=True, kw_only=True):
    """How a change moves through the fleet."""

    max_unavailable: Annotated[
        Count | Percent,
        doc("Most nodes that may be out of service at once: a number, or a percentage that is rounded up."),
    ] = "25%"
    max_parallel: Annotated[Count, doc("Most nodes that are changed at the same time.")] = 1
    soak_minutes: Annotated[
        Annotated[int, Meta(ge=0, le=10_080)],
        doc("How long a changed node must stay healthy before the next ones follow."),
    ] = 0
    drain_timeout_minutes: Annotated[
        Annotated[int, Meta(ge=1, le=1_440)],
        doc("How long pods may take to leave a node before its change is given up."),
    ] = 5
    max_failures: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)],
        doc("Most nodes that may fail before no further one begins; a node of the first wave may never."),
    ] = 0
    waves: Annotated[
        tuple[Wave, ...],
        doc("Waves, one after the other: the first is the canary, the last takes all that are left; empty: no waves."),
    ] = ()


class StackSpec(Section, frozen=True, kw_only=True):
    """What every node of a group should be: the effective declaration of one node has this type."""

    driver: Driver = Driver()
    runtime: Runtime = Runtime()
    plugin: Plugin = Plugin()
    node: Node = Node()
    tenancy: Tenancy = Tenancy()
    rollout: Rollout = Rollout()


class GpuStack(Section, frozen=True, kw_only=True):
    """The declaration, as it stands in grapnel.yaml."""

    api_version: Annotated[Literal["grapnel.dev/v1alpha1"], doc("Version of this format.")]
    kind: Annotated[Literal["GpuStack"], doc("Type of the document.")]
    metadata: Metadata = Metadata()
    spec: StackSpec
