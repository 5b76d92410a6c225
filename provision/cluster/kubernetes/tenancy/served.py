"""Looks whether a cluster serves what a declaration asks of it: Kueue's queues, Kubernetes' own gang scheduling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.api.client import NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.objects.core import ApiGroup, ServedResources
from provision.declaration.spec.model import GangScheduler, Kueue
from provision.planning.render.kueue import GROUP, KUEUE_KINDS, VERSION
from provision.planning.render.tenancy import KINDS, PRIORITY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.client import Api
    from provision.planning.render.cluster_object import ObjectKind
    from provision.rollout.interface.tenancy import TenancyOrder

GANGS: Final = PRIORITY.group
# What shows it: PodGroups, in whichever version of the group (v1alpha2 in Kubernetes 1.36, v1beta1 and v1alpha3 in
# 1.37), since no object of it is read or written here; in 1.35 Workloads, which have their groups in themselves.
_POD_GROUPS: Final = "podgroups"
_BEFORE_POD_GROUPS: Final = (f"{GANGS}/v1alpha1", "workloads")
_HOW: Final = (
    f"Kubernetes 1.37 or newer with the gate GenericWorkload and --runtime-config={GANGS}/v1beta1=true, or 1.36 with "
    f"the gates GenericWorkload and GangScheduling and --runtime-config={GANGS}/v1alpha2=true"
)


@dataclass(frozen=True, slots=True)
class Served:
    """Whether queues can be made, and what is missing of what is asked for."""

    has_kueue: bool
    problems: tuple[str, ...]

    @property
    def kinds(self) -> tuple[ObjectKind, ...]:
        """The kinds of objects that there can be."""
        return (*KINDS, *(KUEUE_KINDS if self.has_kueue else ()))


def look(api: Api, order: TenancyOrder) -> Served:
    """Return what a cluster serves. A request for Kueue, and one or two for each version of what else is asked for."""
    has_kueue = {kind.plural for kind in KUEUE_KINDS} <= _resources(api, f"{GROUP}/{VERSION}")
    return Served(has_kueue, tuple(_problems(api, order, has_kueue=has_kueue)))


def _problems(api: Api, order: TenancyOrder, *, has_kueue: bool) -> Iterator[str]:
    tenancy, gangs = order.tenancy, order.tenancy.gangs
    install = "install Kueue 0.15 or newer"
    if not has_kueue and tenancy.kueue != Kueue():
        others = ", ".join(_versions(api, GROUP))
        but = f", but {others}" if others else ""
        yield f"tenancy.kueue: this cluster serves no {GROUP}/{VERSION}{but}, so no queue is made ({install})"
    if gangs is GangScheduler.NONE:
        return
    has_gangs = gangs is not GangScheduler.KUEUE and _has_gangs(api)
    if gangs is GangScheduler.KUBERNETES and not has_gangs:
        yield f"tenancy.gangs: this cluster has no gang scheduling of its own: it takes {_HOW}"
    elif gangs is GangScheduler.KUEUE and not has_kueue:
        yield f"tenancy.gangs: this cluster has no Kueue ({install})"
    elif gangs is GangScheduler.ANY and not has_gangs and not has_kueue:
        yield (
            "tenancy.gangs: nothing here places a group of pods whole or not at all: there is no Kueue and no gang "
            f"scheduling (it takes {_HOW}; or {install})"
        )


def _has_gangs(api: Api) -> bool:
    for version in _versions(api, GANGS):
        served = _resources(api, version)
        if _POD_GROUPS in served or (version == _BEFORE_POD_GROUPS[0] and _BEFORE_POD_GROUPS[1] in served):
            return True
    return False


def _versions(api: Api, group: str) -> tuple[str, ...]:
    """Return the versions of a group that are served, such as scheduling.k8s.io/v1."""
    try:
        found = api.call(Request(method="GET", path=f"/apis/{group}"), ApiGroup, expected=(NOT_FOUND,))
    except StatusError:
        return ()
    return tuple(each.group_version for each in found.versions)


def _resources(api: Api, version: str) -> frozenset[str]:
    try:
        found = api.call(Request(method="GET", path=f"/apis/{version}"), ServedResources, expected=(NOT_FOUND,))
    except StatusError:
        return frozenset()
    return frozenset(each.name for each in found.resources)
