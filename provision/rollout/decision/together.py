"""Says in which domain each node is, and which domains cannot be changed as one. Pure.

Known once, before a rollout begins: a label that changes half-way moves no node.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.rollout.cluster import NodeProblem
from provision.spec.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import NodeView
    from provision.spec.model import Domains


def with_domains(
    states: Sequence[NodeState], domains: Domains | None, groups: Mapping[str, Sequence[str]]
) -> list[NodeState]:
    """Return the nodes, each with its domain; ``groups`` are the inventory's, by node."""
    if domains is None:
        return list(states)
    if domains.node_label is not None:
        return [replace(state, domain=state.view.labels.get(domains.node_label, "")) for state in states]
    return [replace(state, domain=_group_of(state.name, domains, groups)) for state in states]


def _group_of(name: str, domains: Domains, groups: Mapping[str, Sequence[str]]) -> str:
    mine = groups.get(name, ())
    return next((group for group in domains.groups if group in mine), "")


def why_apart(
    states: Sequence[NodeState],
    views: Mapping[str, NodeView | NodeProblem],
    domains: Domains | None,
    groups: Mapping[str, Sequence[str]],
) -> dict[str, str]:
    """Return why nodes that would have to begin with their whole domain cannot; those in flight are not in it."""
    if domains is None:
        return {}
    if domains.node_label is not None and not any(state.domain for state in states):
        reason = f"no Node has the label {domains.node_label}, which is to name its domain: correct rollout.domains"
        return dict.fromkeys((state.name for state in states if state.wants_to_begin), reason)
    problems = _problems(views, domains, groups)
    found: dict[str, list[NodeState]] = {}
    for state in states:
        if state.domain and state.wants_to_begin:
            found.setdefault(state.domain, []).append(state)
    reasons: dict[str, str] = {}
    for domain, members in found.items():
        reason = problems.get(domain) or _why_differing(domain, members)
        reasons |= dict.fromkeys((state.name for state in members), reason) if reason else {}
    return reasons


def _why_differing(domain: str, members: Sequence[NodeState]) -> str:
    targets = sorted({state.target for state in members})
    if len(targets) == 1:
        return ""
    return f"its domain {domain} is changed as one, and its nodes declare {few(targets)}: declare one driver for it"


def _problems(
    views: Mapping[str, NodeView | NodeProblem], domains: Domains, groups: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return why a domain cannot begin of which a node is not to be found; by labels nobody knows which that is."""
    return {
        domain: f"{name} of its domain {domain} cannot take part: {view.message}"
        for name, view in views.items()
        if isinstance(view, NodeProblem) and (domain := _group_of(name, domains, groups))
    }
