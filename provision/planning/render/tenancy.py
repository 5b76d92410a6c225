"""Renders what tenants may have: ResourceQuotas, LimitRanges and PriorityClasses. Pure.

Two of Kubernetes' rules are worked around here. A quota of an extended resource is one of its requests
(`pkg/quota/v1/evaluator/core`). A LimitRange with a `max` and no `default` gives every container the maximum
(`pkg/apis/core/v1/defaults.go`), and with a default of nothing it gives no container a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from provision.declaration.spec.rules.tenancy import OF_CLASS
from provision.planning.render.cluster_object import ClusterObject, ObjectKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.spec.model import PriorityClass, Tenancy, Tenant

QUOTA: Final = ObjectKind(kind="ResourceQuota", group="", version="v1", plural="resourcequotas", is_namespaced=True)
LIMITS: Final = ObjectKind(kind="LimitRange", group="", version="v1", plural="limitranges", is_namespaced=True)
PRIORITY: Final = ObjectKind(
    kind="PriorityClass",
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    fixed=(("value",), ("preemptionPolicy",)),
)
KINDS: Final = (PRIORITY, QUOTA, LIMITS)
NAME: Final = "grapnel"


def render_tenancy(tenancy: Tenancy) -> Iterator[ClusterObject]:
    """Yield the objects of a declaration, each before those that name it."""
    for each in tenancy.priorities:
        yield _priority(each)
    for tenant in tenancy.tenants:
        yield from _quotas(tenant)
        if limits := _limits(tenant):
            content = {"spec": {"limits": [limits]}}
            yield ClusterObject(kind=LIMITS, name=NAME, namespace=tenant.namespace, content=content)


def _priority(priority: PriorityClass) -> ClusterObject:
    content: dict[str, Any] = {
        "value": priority.value,
        "preemptionPolicy": "PreemptLowerPriority" if priority.preempts else "Never",
    }
    content |= {"description": priority.description} if priority.description else {}
    return ClusterObject(kind=PRIORITY, name=priority.name, content=content)


def _quotas(tenant: Tenant) -> Iterator[ClusterObject]:
    if tenant.quota:
        content = {"spec": {"hard": _hard(tenant.quota)}}
        yield ClusterObject(kind=QUOTA, name=NAME, namespace=tenant.namespace, content=content)
    for name, amounts in sorted(tenant.by_priority.items()):
        scope = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
        spec = {"hard": _hard(amounts), "scopeSelector": {"matchExpressions": [scope]}}
        yield ClusterObject(kind=QUOTA, name=f"{NAME}-{name}", namespace=tenant.namespace, content={"spec": spec})


def _hard(amounts: Mapping[str, int | str]) -> dict[str, str]:
    return {_counted(name): str(amount) for name, amount in sorted(amounts.items())}


def _counted(name: str) -> str:
    """Return what a quota calls a resource that pods ask for by this name."""
    is_device = "/" in name and not name.startswith(("requests.", "count/")) and not name.endswith(OF_CLASS)
    return f"requests.{name}" if is_device else name


def _limits(tenant: Tenant) -> dict[str, Any]:
    held = tenant.containers
    devices = {name for name in held.max if "/" in name}
    none = {name: 0 for name in sorted(devices) if name not in held.default}
    parts = {
        "default": _texts({**held.default, **none}),
        "defaultRequest": _texts({**held.default_request, **none}),
        "max": _texts(held.max),
    }
    said = {key: amounts for key, amounts in parts.items() if amounts}
    return {"type": "Container", **said} if said else {}


def _texts(amounts: Mapping[str, int | str]) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}
