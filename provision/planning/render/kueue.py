"""Renders the queues of a declaration for Kueue: ResourceFlavors, Cohorts, ClusterQueues and LocalQueues. Pure.

Fields are those of kueue.x-k8s.io/v1beta2 (`apis/kueue/v1beta2` of sigs.k8s.io/kueue). Within a resource group every
flavor has a quota of every covered resource, in the same order: what a declaration leaves out is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from provision.planning.render.cluster_object import ClusterObject, ObjectKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provision.declaration.spec.model import Flavor, FlavorQuota, Queue, Tenancy

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
PRODUCT: Final = "nvidia.com/gpu.product"
_NAMESPACE: Final = "kubernetes.io/metadata.name"
FLAVOR: Final = ObjectKind(kind="ResourceFlavor", group=GROUP, version=VERSION, plural="resourceflavors")
COHORT: Final = ObjectKind(kind="Cohort", group=GROUP, version=VERSION, plural="cohorts")
CLUSTER_QUEUE: Final = ObjectKind(kind="ClusterQueue", group=GROUP, version=VERSION, plural="clusterqueues")
LOCAL_QUEUE: Final = ObjectKind(
    kind="LocalQueue",
    group=GROUP,
    version=VERSION,
    plural="localqueues",
    is_namespaced=True,
    fixed=(("spec", "clusterQueue"),),
)
KUEUE_KINDS: Final = (FLAVOR, COHORT, CLUSTER_QUEUE, LOCAL_QUEUE)


def render_kueue(tenancy: Tenancy) -> Iterator[ClusterObject]:
    """Yield the objects of a declaration, each before those that name it."""
    for flavor in tenancy.kueue.flavors:
        yield _flavor(flavor)
    parents = {each.name: each.parent for each in tenancy.kueue.cohorts}
    named = [each.cohort for each in tenancy.kueue.queues] + list(parents.values())
    for name in sorted({*parents, *(each for each in named if each is not None)}):
        yield _cohort(name, parents.get(name))
    for queue in tenancy.kueue.queues:
        namespaces = [tenant.namespace for tenant in tenancy.tenants if tenant.queue == queue.name]
        yield _cluster_queue(queue, namespaces)
    for tenant in tenancy.tenants:
        if tenant.queue is not None:
            spec = {"spec": {"clusterQueue": tenant.queue}}
            yield ClusterObject(kind=LOCAL_QUEUE, name=tenant.queue, namespace=tenant.namespace, content=spec)


def _flavor(flavor: Flavor) -> ClusterObject:
    labels = dict(flavor.node_labels) | ({PRODUCT: flavor.product} if flavor.product is not None else {})
    spec: dict[str, Any] = {"nodeLabels": dict(sorted(labels.items()))} if labels else {}
    return ClusterObject(kind=FLAVOR, name=flavor.name, content={"spec": spec})


def _cohort(name: str, parent: str | None) -> ClusterObject:
    spec = {} if parent is None else {"parentName": parent}
    return ClusterObject(kind=COHORT, name=name, content={"spec": spec})


def _cluster_queue(queue: Queue, namespaces: Sequence[str]) -> ClusterObject:
    covered = sorted({name for quota in queue.quotas for name in quota.resources})
    mine = {"key": _NAMESPACE, "operator": "In", "values": sorted(namespaces)}
    nobody = {"key": _NAMESPACE, "operator": "DoesNotExist"}  # every namespace has it; an empty selector is all of them
    spec: dict[str, Any] = {
        "namespaceSelector": {"matchExpressions": [mine if namespaces else nobody]},
        "resourceGroups": [
            {"coveredResources": covered, "flavors": [_quotas(quota, covered) for quota in queue.quotas]}
        ],
    }
    spec |= {} if queue.cohort is None else {"cohortName": queue.cohort}
    return ClusterObject(kind=CLUSTER_QUEUE, name=queue.name, content={"spec": spec})


def _quotas(quota: FlavorQuota, covered: Sequence[str]) -> dict[str, Any]:
    return {"name": quota.flavor, "resources": [_amounts(quota, name) for name in covered]}


def _amounts(quota: FlavorQuota, name: str) -> dict[str, str]:
    amounts = {"name": name, "nominalQuota": str(quota.resources.get(name, 0))}
    for key, limits in (("borrowingLimit", quota.borrow), ("lendingLimit", quota.lend)):
        if name in limits:
            amounts[key] = str(limits[name])
    return amounts
