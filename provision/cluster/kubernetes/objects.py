"""Defines the parts of Kubernetes objects that are read, as values.

Answers are decoded straight into these (msgspec): the client's own models would cost seconds for a thousand nodes.
Names are those of the Kubernetes API; fields that are not named here are skipped unread.
"""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec


class _Object(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tolerant: what is not named is ignored."""


class OwnerReference(_Object, frozen=True, kw_only=True):
    """Who made an object; ``controller`` marks the one that manages it.

    Whoever makes an object may write any into it. What names an owner that is not there, by its uid, is deleted by the
    garbage collector, if the cluster serves the owner's kind: of other kinds nobody ever looks.
    """

    kind: str
    name: str
    api_version: str = ""
    uid: str = ""
    controller: bool = False

    def is_a(self, group: str, kind: str) -> bool:
        """Tell whether the owner is of a kind of an API group, in whatever version."""
        return self.kind == kind and self.api_version.startswith(f"{group}/")


class Metadata(_Object, frozen=True, kw_only=True):
    """What every object has. ``deletion_timestamp`` is set while it is being deleted: when its grace period ends.

    ``creation_timestamp`` is by the API server's clock.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """Who manages it, None where nobody does."""
        return next((each for each in self.owner_references if each.controller), None)


class Condition(_Object, frozen=True, kw_only=True):
    """``status`` is "True", "False" or "Unknown"; ``reason`` is one word, ``message`` is for people.

    ``last_heartbeat_time`` is when whoever answers for it last said so, as it was written.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None


class Taint(_Object, frozen=True, kw_only=True, omit_defaults=True):
    """What keeps pods off a node; all of it is written back for the taints of others."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(_Object, frozen=True, kw_only=True):
    """``unschedulable`` is what `kubectl cordon` sets."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(_Object, frozen=True, kw_only=True):
    """``type`` is "InternalIP", "ExternalIP", "Hostname" or a DNS name's."""

    type: str
    address: str


class NodeInfo(
    _Object,
    frozen=True,
    kw_only=True,
    rename={
        "machine_id": "machineID",
        "boot_id": "bootID",
        "kernel_version": "kernelVersion",
        "kubelet_version": "kubeletVersion",
        "container_runtime_version": "containerRuntimeVersion",
    },
):
    """``machine_id`` is what the kubelet read from ``/etc/machine-id``, ``boot_id`` the boot in which it began.

    ``container_runtime_version`` is such as "containerd://1.7.27".
    """

    machine_id: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(_Object, frozen=True, kw_only=True):
    """What the kubelet says of its node: nobody else has looked.

    ``capacity`` is what there is of each resource, ``allocatable`` what pods can be given of it.
    """

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(_Object, frozen=True, kw_only=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet says so, and has been heard of lately."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)


class Resources(_Object, frozen=True, kw_only=True):
    """Quantities by resource name, as the API server writes them: text such as "1" or "500m"."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(_Object, frozen=True, kw_only=True):
    """An application, init or sidecar container; a sidecar is an init container whose ``restart_policy`` is Always."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class Toleration(_Object, frozen=True, kw_only=True):
    """Taints that keep a pod off no node; an empty ``key`` or ``effect`` means all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class EmptyDir(_Object, frozen=True, kw_only=True):
    """A folder that ends with the pod; ``medium`` is "Memory" or empty for the node's disk."""

    medium: str = ""


class Volume(_Object, frozen=True, kw_only=True):
    """A volume, of which only this kind is looked at."""

    empty_dir: EmptyDir | None = None


class PodResourceClaim(_Object, frozen=True, kw_only=True):
    """A claim of a pod: ``resource_claim_name``, or one that is made for it, which the pod's status names."""

    name: str
    resource_claim_name: str = ""


class PodSpec(_Object, frozen=True, kw_only=True):
    """``node_name`` is empty until the pod is bound to a node."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    runtime_class_name: str = ""
    resource_claims: tuple[PodResourceClaim, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()


class Waiting(_Object, frozen=True, kw_only=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Terminated(_Object, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(_Object, frozen=True, kw_only=True):
    """``terminated`` is set when the container has ended, ``waiting`` before it runs."""

    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(_Object, frozen=True, kw_only=True):
    """How a container stands, and how it stood before it was started again."""

    name: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class ResourceClaimStatus(_Object, frozen=True, kw_only=True):
    """Which claim was made for ``name`` of the pod's claims."""

    name: str
    resource_claim_name: str | None = None


class PodStatus(_Object, frozen=True, kw_only=True):
    """``phase`` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = "Pending"
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[ResourceClaimStatus, ...] = ()


class Pod(_Object, frozen=True, kw_only=True):
    metadata: Metadata
    spec: PodSpec
    status: PodStatus = PodStatus()


class SelectorRequirement(_Object, frozen=True, kw_only=True):
    """``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(_Object, frozen=True, kw_only=True):
    """Selects objects by labels; without any requirement, all of them."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeSelectorTerm(_Object, frozen=True, kw_only=True):
    """Selects Nodes that meet all of it; ``operator`` may be Gt or Lt, too, ``match_fields`` knows the name alone."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(_Object, frozen=True, kw_only=True):
    """Selects Nodes that meet one of its terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(
    _Object, frozen=True, kw_only=True, rename={"required": "requiredDuringSchedulingIgnoredDuringExecution"}
):
    """Which Nodes a pod has to be on; what it would only like is not looked at."""

    required: NodeSelector | None = None


class Affinity(_Object, frozen=True, kw_only=True):
    """Where a pod wants to be."""

    node_affinity: NodeAffinity | None = None


class AskedPodSpec(PodSpec, frozen=True, kw_only=True):
    """The same, with what decides which node the pod is bound to."""

    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    scheduler_name: str = ""


class AskedPodStatus(PodStatus, frozen=True, kw_only=True):
    """The same, with what scheduler and kubelet say of the pod."""

    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    reason: str = ""
    message: str = ""


class AskedPod(_Object, frozen=True, kw_only=True):
    """A pod that somebody asks about: more of it is read than of those that are listed by the thousand."""

    metadata: Metadata
    spec: AskedPodSpec
    status: AskedPodStatus = AskedPodStatus()


class Involved(_Object, frozen=True, kw_only=True):
    """What an Event is about."""

    kind: str = ""
    name: str = ""


class Event(_Object, frozen=True, kw_only=True):
    """What a part of the cluster has said of an object lately."""

    metadata: Metadata
    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""


class DisruptionBudgetSpec(_Object, frozen=True, kw_only=True):
    """``selector`` None selects no pod."""

    selector: LabelSelector | None = None


class DisruptionBudgetStatus(_Object, frozen=True, kw_only=True):
    """How many evictions a budget allows now, and why: what it wants healthy, what is, and how many pods there are."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class DisruptionBudget(_Object, frozen=True, kw_only=True):
    """A PodDisruptionBudget of policy/v1."""

    metadata: Metadata
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class Allocated(_Object, frozen=True, kw_only=True):
    """One device of a claim."""

    driver: str = ""


class AllocatedDevices(_Object, frozen=True, kw_only=True):
    """The devices of a claim."""

    results: tuple[Allocated, ...] = ()


class Allocation(_Object, frozen=True, kw_only=True):
    """What a claim was given."""

    devices: AllocatedDevices = AllocatedDevices()


class ResourceClaimState(_Object, frozen=True, kw_only=True):
    """``allocation`` is None until it was given something."""

    allocation: Allocation | None = None


class ResourceClaim(_Object, frozen=True, kw_only=True):
    """A ResourceClaim of resource.k8s.io; what is read is the same in its versions since v1beta1."""

    metadata: Metadata
    status: ResourceClaimState = ResourceClaimState()

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers of its devices."""
        found = self.status.allocation
        return frozenset() if found is None else frozenset(each.driver for each in found.devices.results)


class ServedResource(_Object, frozen=True, kw_only=True):
    """A resource that an API version serves; ``name`` is its plural."""

    name: str


class ServedResources(_Object, frozen=True, kw_only=True):
    """All that an API version serves."""

    resources: tuple[ServedResource, ...] = ()


class GroupVersion(_Object, frozen=True, kw_only=True):
    """A version of an API group, such as ``resource.k8s.io/v1``."""

    group_version: str


class ApiGroup(_Object, frozen=True, kw_only=True):
    """What the API server says of a group of its API; its versions begin with the one that it prefers."""

    preferred_version: GroupVersion
    versions: tuple[GroupVersion, ...] = ()


class RuntimeClass(_Object, frozen=True, kw_only=True):
    """A RuntimeClass; ``handler`` is a name in the engine's configuration."""

    metadata: Metadata
    handler: str


class LeaseSpec(_Object, frozen=True, kw_only=True):
    """Who holds a lease; an empty holder means nobody."""

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(_Object, frozen=True, kw_only=True):
    """A Lease of coordination.k8s.io."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()


class ListMetadata(
    _Object, frozen=True, kw_only=True, rename={"continue_": "continue", "resource_version": "resourceVersion"}
):
    """``continue_`` asks for the next page; empty on the last one. ``resource_version`` is the moment of the list."""

    continue_: str = ""
    resource_version: str = ""


Item = TypeVar("Item")


class Page(_Object, Generic[Item], frozen=True, kw_only=True):
    metadata: ListMetadata = ListMetadata()
    items: tuple[Item, ...] = ()


class WatchEvent(_Object, frozen=True, kw_only=True):
    """One change: ADDED, MODIFIED or DELETED, or a BOOKMARK of the moment, or an ERROR with a Status."""

    type: str
    object: msgspec.Raw


class Cause(_Object, frozen=True, kw_only=True):
    """One of the reasons of a refusal; ``field`` is what it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(_Object, frozen=True, kw_only=True):
    """What a refusal says besides its message."""

    causes: tuple[Cause, ...] = ()


class Status(_Object, frozen=True, kw_only=True):
    """Why the API server refuses: the kind ``Status``."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails = StatusDetails()
