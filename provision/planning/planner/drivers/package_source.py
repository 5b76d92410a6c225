"""Chooses whose package names a node is planned with where a bundle is declared, which has packages of any source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import DriverSource, KernelModule
from provision.planning.driver.packages.closure import resolve_driver
from provision.planning.node_plan import Derived, Problem
from provision.planning.planner.drivers.choice import request_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver.packages.distribution import Distribution

# NVIDIA's first: on Debian it names a package that no other source has, beside names that both have. Canonical's last:
# where a kernel has no compiled module, its packages are the distribution's. Those of a runfile are told by the file
# that they were made of, which only a declaration of that source names.
_ORDER: Final = (DriverSource.NVIDIA, DriverSource.DISTRIBUTION, DriverSource.CANONICAL)


def as_each_source(declared: Driver, distribution: Distribution) -> tuple[Driver, ...]:
    """Return a declaration once for every source whose packages a bundle may have, in the order of `_ORDER`."""
    sources = [each for each in _ORDER if each in distribution.offers]
    return tuple(msgspec.structs.replace(declared, source=each) for each in sources)


def with_package_source(
    facts: NodeFacts, declared: Driver, distribution: Distribution
) -> tuple[Driver, tuple[Derived, ...]]:
    """Return what is declared with the first source whose packages are all offered, and why it is this one.

    ``facts`` offer what the bundle has. Where no source has everything, it is the one that comes closest: what that
    lacks is then the problem of the plan.
    """
    if declared.source is not DriverSource.BUNDLE:
        return declared, ()
    for known in (_offered(facts), facts):
        for wanted in _less_and_less(declared):
            for each in as_each_source(wanted, distribution):
                if _has_everything(known, each, distribution):
                    return msgspec.structs.replace(declared, source=each.source), (_derived(declared, each.source),)
    return next(iter(as_each_source(declared, distribution)), declared), ()


def _offered(facts: NodeFacts) -> NodeFacts:
    """Return facts without what is installed: the node may have its driver from somewhere else."""
    available = {
        name: offered
        for name, versions in facts.available.items()
        if (offered := tuple(each for each in versions if each.fetchable))
    }
    return msgspec.structs.replace(facts, available=available, packages={})


def _less_and_less(declared: Driver) -> Iterator[Driver]:
    """Yield what is declared, then without companions, then without a module."""
    yield declared
    yield msgspec.structs.replace(declared, companions=())
    yield msgspec.structs.replace(declared, companions=(), kernel_module=KernelModule.NONE)


def _has_everything(facts: NodeFacts, declared: Driver, distribution: Distribution) -> bool:
    wanted = request_packages(facts, declared, distribution)
    version = declared.version or declared.branch
    if isinstance(wanted, Problem) or version is None:
        return False
    found = resolve_driver(wanted=version, request=wanted.request, available=facts.available, installed=facts.packages)
    return not isinstance(found, Problem)


def _derived(declared: Driver, source: DriverSource) -> Derived:
    version = declared.version or f"of branch {declared.branch}"
    reason = f"the first source whose packages of driver {version} are in the bundle"
    return Derived(key="driver.packages", value=source.value, reason=reason)
