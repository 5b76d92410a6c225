"""Checks rules across the keys of the section `tenancy`: names that are there, amounts that fit into one another.

Which resources a quota can be about, and which of them by priority class, is Kubernetes' own list
(`pkg/apis/core/helper/helpers.go`); what the queues of Kueue may hold is its webhook's.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import SchedulerKind, Tenancy
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.validate import nearest
from provision.declaration.spec.values.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.declaration.spec.model import StackSpec, Tenant
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

TENANCY: Final[KeyPath] = ("tenancy",)
TENANTS: Final[KeyPath] = (*TENANCY, "tenants")
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTS: Final = (
    *("pods", "configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets"),
    *("services", "services.loadbalancers", "services.nodeports", "requests.storage"),
)
_BY_CLASS: Final = ("pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_PREFIXES: Final = ("requests.", "limits.")
OF_CLASS: Final = ".deviceclass.resource.k8s.io/devices"  # what claims ask for of a DeviceClass, in a quota alone
_SYSTEM: Final = "system-"
_KUBERNETES: Final = "kube-"


def judge_tenancy(spec: StackSpec) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    tenancy = spec.tenancy
    return chain(_once(tenancy), _priorities(tenancy), _nowhere(spec), chain.from_iterable(_tenants(tenancy)))


def has_objects(tenancy: Tenancy) -> bool:
    """Tell whether the section declares anything that is an object of the cluster, or wants something of it."""
    return without_names(tenancy) != Tenancy()


def without_names(tenancy: Tenancy) -> Tenancy:
    """Return what is the cluster's: all but the namespaces, which are a rule of each node's hook."""
    return msgspec.structs.replace(tenancy, namespaces=())


def _tenants(tenancy: Tenancy) -> Iterator[Iterator[Remark]]:
    """Yield the rules of each tenant: of one that is not known in part, those of the others are judged."""
    for index in range(len(tenancy.tenants)):
        yield _tenant(tenancy, index)


def _once(tenancy: Tenancy) -> Iterator[Remark]:
    """Within a section, a name names one thing."""
    lists: tuple[tuple[KeyPath, Sequence[str]], ...] = (
        (TENANTS, [each.namespace for each in tenancy.tenants]),
        ((*TENANCY, "priorities"), [each.name for each in tenancy.priorities]),
    )
    for path, names in lists:
        for index, name in enumerate(names):
            if name in names[:index]:
                yield error((*path, index), f"'{name}' is listed twice", "put it into one entry")


def _priorities(tenancy: Tenancy) -> Iterator[Remark]:
    for index, each in enumerate(tenancy.priorities):
        if each.name.startswith(_SYSTEM):
            path: KeyPath = (*TENANCY, "priorities", index, "name")
            yield error(path, f"'{each.name}': names that begin with {_SYSTEM} are Kubernetes' own", "use another name")


def _nowhere(spec: StackSpec) -> Iterator[Remark]:
    if has_objects(spec.tenancy) and spec.scheduler.kind not in {SchedulerKind.AUTO, SchedulerKind.KUBERNETES}:
        message = f"only its namespaces mean anything with scheduler.kind: {spec.scheduler.kind.value}"
        yield error(TENANCY, message, "quotas, priorities and queues are objects of Kubernetes: leave them out")


def _tenant(tenancy: Tenancy, index: int) -> Iterator[Remark]:
    tenant, path = tenancy.tenants[index], (*TENANTS, index)
    if tenancy.namespaces and tenant.namespace not in tenancy.namespaces:
        message = f"pods of '{tenant.namespace}' may not have GPUs: it is not among tenancy.namespaces"
        yield error((*path, "namespace"), message, "add it there, or leave this tenant out")
    if tenant.namespace.startswith(_KUBERNETES):
        message = f"'{tenant.namespace}' is Kubernetes' own, and a quota could keep its pods from starting"
        yield error((*path, "namespace"), message, "leave it out")
    for name in tenant.quota:
        yield from _known((*path, "quota", name), name)
    for key, amounts in _of_containers(tenant).items():
        for name in amounts:
            place: KeyPath = (*path, "containers", key, name)
            yield from _in_container(place, name)
    yield from _whole(tenant, path)
    yield from _classes(tenancy, tenant, path)
    yield from _containers(tenant, path)
    yield from _queue(tenancy, tenant, path)


def _of_containers(tenant: Tenant) -> dict[str, Mapping[str, int | str]]:
    held = tenant.containers
    return {"default": held.default, "defaultRequest": held.default_request, "max": held.max}


def bare(name: str) -> str:
    """Return a resource of a quota as pods ask for it: without "requests." or "limits."."""
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def is_extended(name: str) -> bool:
    """Tell whether a resource is a device plugin's, and not Kubernetes' own."""
    return "/" in name and not name.startswith("count/")


def _known(path: KeyPath, name: str) -> Iterator[Remark]:
    """Yield that a quota cannot be about a resource."""
    if is_extended(name):
        if name.startswith("limits."):
            message = f"'{name}': of an extended resource, what is requested is what is limited"
            yield error(path, message, f"write {bare(name)}")
        elif _is_kubernetes(bare(name)):
            yield error(path, f"'{name}' is not a resource of a device plugin", "kubernetes.io is Kubernetes' own")
        return
    known = {*_COUNTS, *_COMPUTE, *(prefix + each for prefix in _PREFIXES for each in _COMPUTE)}
    if name not in known and not name.startswith("hugepages-") and not name.startswith("count/"):
        near = nearest(name, sorted(known))
        hint = f"did you mean {near}?" if near and "gpu" not in name else "devices have a domain: nvidia.com/gpu"
        yield error(path, f"'{name}' is no resource that Kubernetes knows", hint)


def _is_kubernetes(name: str) -> bool:
    domain = name.partition("/")[0]
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def _in_container(path: KeyPath, name: str) -> Iterator[Remark]:
    if is_extended(name) and not name.startswith(_PREFIXES):
        return
    if name not in _COMPUTE and not name.startswith("hugepages-"):
        hint = f"did you mean {bare(name)}?" if bare(name) in _COMPUTE else f"such as nvidia.com/gpu, {_COMPUTE[0]}"
        yield error(path, f"'{name}' is nothing that a container asks for", hint)


def _whole(tenant: Tenant, path: KeyPath) -> Iterator[Remark]:
    """Devices are counted: half of one cannot be had."""
    places = {"quota": tenant.quota}
    found: list[tuple[KeyPath, Mapping[str, int | str]]] = [((*path, key), each) for key, each in places.items()]
    found += [((*path, "containers", key), each) for key, each in _of_containers(tenant).items()]
    for place, amounts in found:
        yield from whole_devices(place, amounts)


def whole_devices(place: KeyPath, amounts: Mapping[str, int | str]) -> Iterator[Remark]:
    """Yield amounts of devices that are no whole numbers."""
    for name, amount in amounts.items():
        value = parse_quantity(amount)
        if is_extended(name) and value is not None and value.denominator != 1:
            yield error((*place, name), f"cannot be '{amount}': devices are counted", "write a whole number")


def _classes(tenancy: Tenancy, tenant: Tenant, path: KeyPath) -> Iterator[Remark]:
    """Yield what is declared of a priority class and cannot be had, or is more than the namespace may have."""
    declared = [each.name for each in tenancy.priorities]
    for name, amounts in tenant.by_priority.items():
        place: KeyPath = (*path, "byPriority", name)
        if name not in declared and not name.startswith(_SYSTEM):
            near = nearest(name, declared)
            hint = f"did you mean {near}?" if near else "declare it in tenancy.priorities, or make sure it is there"
            yield warning(place, f"no priority class '{name}' is declared", hint)
        for resource, amount in amounts.items():
            if resource not in _BY_CLASS:
                message = f"Kubernetes counts no {resource} by priority class"
                yield error((*place, resource), message, f"write pods; it counts {few(_BY_CLASS)}")
                continue
            most, wanted = parse_quantity(tenant.quota.get(resource)), parse_quantity(amount)
            if most is not None and wanted is not None and wanted > most:
                message = f"is {amount}, and the quota of the namespace is {tenant.quota[resource]}"
                yield error((*place, resource), message, "raise the quota, or give the class less")


def _containers(tenant: Tenant, path: KeyPath) -> Iterator[Remark]:
    """Yield amounts of containers that contradict one another or the quota."""
    held = tenant.containers
    pairs = (
        ("defaultRequest", held.default_request, "default", held.default),
        ("defaultRequest", held.default_request, "max", held.max),
        ("default", held.default, "max", held.max),
    )
    for key, less, other, more in pairs:
        for name, amount in less.items():
            small, large = parse_quantity(amount), parse_quantity(more.get(name))
            if small is not None and large is not None and small > large:
                place: KeyPath = (*path, "containers", key, name)
                yield error(place, f"is {amount}, and {other} is {more[name]}", f"{key} is at most {other}")
            if is_extended(name) and key == "defaultRequest" and other == "default" and small != large:
                place = (*path, "containers", key, name)
                yield error(place, "has to equal default: devices are not overcommitted", "write default alone")
    for name, amount in held.default.items():
        if is_extended(name) and parse_quantity(amount):
            message = f"gives {name} to every container that asks for none, sidecars as well"
            yield warning((*path, "containers", "default", name), message, "leave it out, and have pods ask")
    for name, amount in held.max.items():
        most, quota = parse_quantity(amount), parse_quantity(tenant.quota.get(name))
        if most is not None and quota is not None and most > quota:
            message = f"is {amount}, and the quota of all pods together is {tenant.quota[name]}"
            yield warning((*path, "containers", "max", name), message, "no container gets that many")


def _queue(tenancy: Tenancy, tenant: Tenant, path: KeyPath) -> Iterator[Remark]:
    queues = [each.name for each in tenancy.kueue.queues]
    if tenant.queue is not None and tenant.queue not in queues:
        near = nearest(tenant.queue, queues)
        hint = f"did you mean {near}?" if near else f"queues: {few(queues) if queues else 'none are declared'}"
        yield error((*path, "queue"), f"no queue is named '{tenant.queue}'", hint)
