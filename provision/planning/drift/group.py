"""Puts the differences of a fleet together: equal ones once, with the nodes that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.planning.drift.compare import differences_of
from provision.planning.drift.origin import origins
from provision.planning.node_plan import Disruption

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.drift.model import Difference
    from provision.planning.drift.origin import Origin
    from provision.planning.node_plan import NodePlan, Problem


@dataclass(frozen=True, slots=True)
class Case:
    """A difference with its nodes. ``disruption`` is the most that `grapnel apply` costs one of them.

    ``needs_force``: on one of them there is an edited file, which `apply` refuses without being told to overwrite it.
    ``origins`` are what is known of where it comes from, by node; empty where nothing is.
    """

    difference: Difference
    nodes: tuple[str, ...]
    disruption: Disruption
    origins: Mapping[str, tuple[Origin, ...]]
    needs_force: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """A fleet beside its declaration: the cases, the most frequent first, and each node's place in it.

    A node with problems may also have differences: those that were found in spite of them.
    """

    cases: tuple[Case, ...]
    as_declared: tuple[str, ...]
    drifted: tuple[str, ...]
    problems: Mapping[str, tuple[Problem, ...]]


def group(plans: Mapping[str, NodePlan], facts: Mapping[str, NodeFacts]) -> Comparison:
    """Return the comparison of nodes by their plans; nodes and equal cases keep their order."""
    found: dict[Difference, list[str]] = {}
    drifted = []
    edited = set()
    for node, plan in plans.items():
        differences = differences_of(plan)
        for difference in differences:
            found.setdefault(difference, []).append(node)
        if any(difference.is_edit for difference in differences):
            edited.add(node)
        if differences and not plan.problems:
            drifted.append(node)
    cases = [
        _case(difference, tuple(dict.fromkeys(nodes)), plans, facts, edited) for difference, nodes in found.items()
    ]
    return Comparison(
        cases=tuple(sorted(cases, key=lambda case: -len(case.nodes))),
        as_declared=tuple(node for node, plan in plans.items() if plan.is_empty),
        drifted=tuple(drifted),
        problems={node: plan.problems for node, plan in plans.items() if plan.problems},
    )


def _case(
    difference: Difference,
    nodes: tuple[str, ...],
    plans: Mapping[str, NodePlan],
    facts: Mapping[str, NodeFacts],
    edited: AbstractSet[str],
) -> Case:
    known = {node: origins(difference, facts[node]) for node in nodes}
    return Case(
        difference,
        nodes,
        max((plans[node].disruption for node in nodes), key=list(Disruption).index),
        {node: those for node, those in known.items() if those},
        needs_force=not edited.isdisjoint(nodes),
    )
