"""Tells which versions of a declared branch a node can have, so that one can be chosen for all nodes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.declaration.spec.model import DriverSource
from provision.planning.driver.packages import repository
from provision.planning.driver.packages.catalogue import find_distribution
from provision.planning.driver.packages.closure import upstream_versions
from provision.planning.node_plan import Problem, Role
from provision.planning.planner.drivers.choice import request_packages
from provision.planning.planner.drivers.package_source import as_each_source
from provision.planning.planner.part import plan_files

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver.packages.distribution import Distribution


def versions_for(facts: NodeFacts, declared: Driver) -> frozenset[str] | None:
    """Return the upstream versions that a node can have.

    None for a node that a plan has other problems for, and for one that does not know its package source yet.
    """
    distribution = find_distribution(facts.node)
    if isinstance(distribution, Problem):
        return None
    if declared.source is DriverSource.BUNDLE:
        having = [_versions(facts, each, distribution) for each in as_each_source(declared, distribution)]
        known = [each for each in having if each is not None]
        return frozenset().union(*known) if known else None
    return _versions(facts, declared, distribution)


def _versions(facts: NodeFacts, declared: Driver, distribution: Distribution) -> frozenset[str] | None:
    sources = repository.render(distribution, declared.source, declared.repository)
    if isinstance(sources, Problem) or plan_files(facts, Role.DRIVER, sources):
        return None
    wanted = request_packages(facts, declared, distribution)
    return None if isinstance(wanted, Problem) else upstream_versions(wanted.request, facts.available)
