"""Looks whether a cluster serves what a declaration asks of it: Kueue's queues, Kubernetes' own gang scheduling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.api import NOT_FOUND
from provision.cluster.exchange import Request, StatusError
from provision.cluster.objects import ServedResources
from provision.render.kueue import GROUP, KUEUE_KINDS, VERSION
from provision.render.tenancy import KINDS
from provision.spec.model import GangScheduler, Kueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.api import Api
    from provision.render.cluster_object import ObjectKind
    from provision.rollout.tenancy import TenancyOrder

# PodGroups of Kubernetes 1.36; served with the gate GenericWorkload alone.
_GANGS: Final = "scheduling.k8s.io/v1alpha2"
_POD_GROUPS: Final = "podgroups"
_HOW: Final = (
    f"Kubernetes 1.36 or newer with the gates GenericWorkload and GangScheduling and --runtime-config={_GANGS}=true"
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
    """Return what a cluster serves. Two requests at most."""
    has_kueue = {kind.plural for kind in KUEUE_KINDS} <= _resources(api, f"{GROUP}/{VERSION}")
    return Served(has_kueue, tuple(_problems(api, order, has_kueue=has_kueue)))


def _problems(api: Api, order: TenancyOrder, *, has_kueue: bool) -> Iterator[str]:
    tenancy, gangs = order.tenancy, order.tenancy.gangs
    install = "install Kueue 0.15 or newer"
    if not has_kueue and tenancy.kueue != Kueue():
        yield f"tenancy.kueue: this cluster serves no {GROUP}/{VERSION}, so no queue is made ({install})"
    if gangs is GangScheduler.NONE:
        return
    has_gangs = gangs is not GangScheduler.KUEUE and _POD_GROUPS in _resources(api, _GANGS)
    if gangs is GangScheduler.KUBERNETES and not has_gangs:
        yield f"tenancy.gangs: this cluster has no gang scheduling of its own: it takes {_HOW}"
    elif gangs is GangScheduler.KUEUE and not has_kueue:
        yield f"tenancy.gangs: this cluster has no Kueue ({install})"
    elif gangs is GangScheduler.ANY and not has_gangs and not has_kueue:
        yield (
            "tenancy.gangs: nothing here places a group of pods whole or not at all: there is no Kueue and no gang "
            f"scheduling (it takes {_HOW}; or {install})"
        )


def _resources(api: Api, version: str) -> frozenset[str]:
    try:
        found = api.call(Request(method="GET", path=f"/apis/{version}"), ServedResources, expected=(NOT_FOUND,))
    except StatusError:
        return frozenset()
    return frozenset(each.name for each in found.resources)
