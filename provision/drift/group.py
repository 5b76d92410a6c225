"""Puts the differences of a fleet together: equal ones once, with the nodes that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.drift.compare import differences_of
from provision.node_plan import Disruption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from provision.drift.model import Difference
    from provision.node_plan import NodePlan, Problem


@dataclass(frozen=True, slots=True)
class Case:
    """A difference with its nodes. ``disruption`` is the most that `grapnel apply` costs one of them."""

    difference: Difference
    nodes: tuple[str, ...]
    disruption: Disruption


@dataclass(frozen=True, slots=True)
class Comparison:
    """A fleet beside its declaration: the cases, the most frequent first, and each node's place in it.

    A node with problems may also have differences: those that were found in spite of them.
    """

    cases: tuple[Case, ...]
    as_declared: tuple[str, ...]
    drifted: tuple[str, ...]
    problems: Mapping[str, tuple[Problem, ...]]


def group(plans: Mapping[str, NodePlan]) -> Comparison:
    """Return the comparison of nodes by their plans; nodes and equal cases keep their order."""
    found: dict[Difference, list[str]] = {}
    drifted = []
    for node, plan in plans.items():
        differences = differences_of(plan)
        for difference in differences:
            found.setdefault(difference, []).append(node)
        if differences and not plan.problems:
            drifted.append(node)
    cases = [
        Case(difference, tuple(dict.fromkeys(nodes)), _most(plans[node].disruption for node in nodes))
        for difference, nodes in found.items()
    ]
    return Comparison(
        cases=tuple(sorted(cases, key=lambda case: -len(case.nodes))),
        as_declared=tuple(node for node, plan in plans.items() if plan.is_empty),
        drifted=tuple(drifted),
        problems={node: plan.problems for node, plan in plans.items() if plan.problems},
    )


def _most(disruptions: Iterable[Disruption]) -> Disruption:
    return max(disruptions, key=list(Disruption).index)
