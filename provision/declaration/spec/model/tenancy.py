"""Defines the section `tenancy`: who may use the GPUs, how many of them, and who goes first."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.kubelet import Quantity
from provision.declaration.spec.model.section import Section, doc, text
from provision.declaration.spec.model.texts import DnsLabel, LabelKey, LabelValue

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
# What pods ask for: a native resource by its bare name, an extended one with its domain.
QuotaResource = Annotated[
    str,
    text(
        rf"(((requests|limits)\.)?({_LABEL}(\.{_LABEL})+/)?|count/)[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?",
        "a resource as pods ask for it: nvidia.com/gpu, cpu, limits.memory, pods",
        "nvidia.com/gpu",
        longest=253,
    ),
]
ClassName = Annotated[
    str,
    text(_LABEL, "a priority class's name: lower-case letters, digits and '-', 63 at most", "urgent", longest=63),
]
QueueName = Annotated[
    str,
    text(_LABEL, "a queue's name: lower-case letters, digits and '-', 63 at most", "research", longest=63),
]
FlavorName = Annotated[
    str,
    text(_LABEL, "a flavor's name: lower-case letters, digits and '-', 63 at most", "h100", longest=63),
]
CohortName = Annotated[
    str,
    text(_LABEL, "a cohort's name: lower-case letters, digits and '-', 63 at most", "everyone", longest=63),
]
ProductName = Annotated[
    str,
    text(
        "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
        "a GPU's model as the label nvidia.com/gpu.product has it: letters, digits, '-', '_' and '.'",
        "NVIDIA-H100-80GB-HBM3",
        longest=63,
    ),
]
ClassValue = Annotated[int, Meta(ge=-2_147_483_648, le=1_000_000_000)]  # Kubernetes keeps what is above for itself
Whole = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Amounts = Mapping[QuotaResource, Whole | Quantity]


class GangScheduler(Enum):
    """Who places a group of pods whole or not at all."""

    NONE = "none"
    ANY = "any"
    KUBERNETES = "kubernetes"
    KUEUE = "kueue"


class PriorityClass(Section, frozen=True, kw_only=True):
    """A PriorityClass of the cluster."""

    name: Annotated[ClassName, doc("What pods name as priorityClassName.")]
    value: Annotated[ClassValue, doc("Pods with a higher value go first.")]
    preempts: Annotated[bool, doc("Whether its pods may have others with a lower value evicted.")] = True
    description: Annotated[str, Meta(max_length=500), doc("What it is for.")] = ""


class ContainerAmounts(Section, frozen=True, kw_only=True):
    """What a container of a namespace has unless it says so itself, and the most that it may have."""

    default: Annotated[Amounts, doc("Limits of containers that name none.")] = msgspec.field(default_factory=dict)
    default_request: Annotated[Amounts, doc("Requests of containers that name none.")] = msgspec.field(
        default_factory=dict
    )
    max: Annotated[Amounts, doc("The most that one container may have.")] = msgspec.field(default_factory=dict)


class Tenant(Section, frozen=True, kw_only=True):
    """What the pods of a namespace may have together."""

    namespace: Annotated[DnsLabel, doc("The namespace, which somebody else has created.")]
    quota: Annotated[
        Amounts, doc("The most that its pods may ask for together, by resource: GPUs, MIG devices, shares, units.")
    ] = msgspec.field(default_factory=dict)
    by_priority: Annotated[
        Mapping[ClassName, Amounts],
        doc("The most that pods of a priority class may ask for together: pods, cpu, memory."),
    ] = msgspec.field(default_factory=dict)
    containers: Annotated[ContainerAmounts, doc("Defaults and limits of its containers.")] = ContainerAmounts()
    queue: Annotated[QueueName | None, doc("Queue of Kueue for its jobs; null: none.")] = None


class Flavor(Section, frozen=True, kw_only=True):
    """Nodes whose GPUs count as alike, for Kueue."""

    name: Annotated[FlavorName, doc("What quotas call it.")]
    product: Annotated[
        ProductName | None, doc("Model of the GPU, as the Node's label nvidia.com/gpu.product has it; null: any.")
    ] = None
    node_labels: Annotated[Mapping[LabelKey, LabelValue], doc("Further labels of its Nodes.")] = msgspec.field(
        default_factory=dict
    )


class Cohort(Section, frozen=True, kw_only=True):
    """Queues that lend one another what they do not use."""

    name: Annotated[CohortName, doc("What queues call it.")]
    parent: Annotated[CohortName | None, doc("Cohort that this one is part of; null: none.")] = None


class FlavorQuota(Section, frozen=True, kw_only=True):
    """What a queue may have of a flavor."""

    flavor: Annotated[FlavorName, doc("The flavor.")]
    resources: Annotated[Amounts, doc("What is the queue's own, by resource.")]
    borrow: Annotated[Amounts, doc("The most that it takes from its cohort; nothing said: all that is free.")] = (
        msgspec.field(default_factory=dict)
    )
    lend: Annotated[Amounts, doc("The most that its cohort gets of it; nothing said: all that is unused.")] = (
        msgspec.field(default_factory=dict)
    )


class Queue(Section, frozen=True, kw_only=True):
    """A ClusterQueue of Kueue; namespaces that name it get a LocalQueue of the same name."""

    name: Annotated[QueueName, doc("What tenants call it.")]
    cohort: Annotated[CohortName | None, doc("Cohort with which it shares what it does not use; null: none.")] = None
    quotas: Annotated[tuple[FlavorQuota, ...], Meta(min_length=1, max_length=16), doc("What it has, by flavor.")]


class Kueue(Section, frozen=True, kw_only=True):
    """Queues of Kueue, which has to be installed."""

    flavors: Annotated[tuple[Flavor, ...], Meta(max_length=64), doc("Kinds of nodes.")] = ()
    cohorts: Annotated[tuple[Cohort, ...], Meta(max_length=64), doc("Cohorts that are part of others.")] = ()
    queues: Annotated[tuple[Queue, ...], Meta(max_length=256), doc("Queues and what each of them has.")] = ()


class Tenancy(Section, frozen=True, kw_only=True):
    """Who may use the GPUs, how many, and who goes first."""

    namespaces: Annotated[
        tuple[DnsLabel, ...],
        doc("Namespaces whose pods may have GPUs; an empty list: all of them.", uniqueItems=True),
    ] = ()
    tenants: Annotated[
        tuple[Tenant, ...], Meta(max_length=1000), doc("What the pods of a namespace may have together.")
    ] = ()
    priorities: Annotated[tuple[PriorityClass, ...], Meta(max_length=100), doc("Priority classes of the cluster.")] = ()
    gangs: Annotated[
        GangScheduler,
        doc(
            "Who has to be there to place a group of pods whole or not at all; none: nobody; any: Kubernetes' gang "
            "scheduling or Kueue."
        ),
    ] = GangScheduler.NONE
    kueue: Annotated[Kueue, doc("Queues of Kueue.")] = Kueue()
