"""Defines what a declaration has for the tenants of a cluster, and how the cluster differs from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Tenancy
from provision.declaration.spec.rules.tenancy import has_objects, without_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.spec.model import StackSpec

NO_KUBERNETES: Final = "tenancy: quotas, priorities and queues are objects of Kubernetes, and these nodes are in none"


@dataclass(frozen=True, slots=True)
class TenancyOrder:
    """What ``stack``, by its name, declares for tenants; what it declares no more is taken back."""

    stack: str = "default"
    tenancy: Tenancy = field(default_factory=Tenancy)

    def __bool__(self) -> bool:
        """Whether anything is declared."""
        return has_objects(self.tenancy)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenancyChange:
    """How a cluster differs from an order. ``changes`` are done, ``problems`` are left to whoever is named in them."""

    order: TenancyOrder = field(default_factory=TenancyOrder)
    changes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def tenancy_order(stack: str, specs: Mapping[str, StackSpec]) -> TenancyOrder:
    """Return what the nodes of a stack declare, all of them the same."""
    first = next(iter(specs.values()), None)
    return TenancyOrder(stack, Tenancy() if first is None else without_names(first.tenancy))


def without_kubernetes(order: TenancyOrder) -> TenancyChange:
    """Return what becomes of an order where there is no cluster of Kubernetes."""
    return TenancyChange(order=order, problems=(NO_KUBERNETES,) if order else ())
