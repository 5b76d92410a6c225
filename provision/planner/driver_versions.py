"""Tells which versions of a declared branch a node can have, so that one can be chosen for all nodes together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.driver.catalogue import find_distribution
from provision.driver.closure import upstream_versions
from provision.node_plan import Problem
from provision.planner.driver_choice import request_packages

if TYPE_CHECKING:
    from provision.fleet.facts import NodeFacts
    from provision.spec.model import Driver


def versions_for(facts: NodeFacts, declared: Driver) -> frozenset[str] | None:
    """Return the upstream versions that a node can have; None for a node that a plan has other problems for."""
    distribution = find_distribution(facts.node)
    if isinstance(distribution, Problem):
        return None
    wanted = request_packages(facts, declared, distribution)
    return None if isinstance(wanted, Problem) else upstream_versions(wanted.request, facts.available)
