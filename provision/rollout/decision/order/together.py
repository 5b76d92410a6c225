"""Says in which domain each node is, and which domains cannot be changed as one. Pure.

Known once, before a rollout begins: a label that changes half-way moves no node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from provision.declaration.spec.text.excerpt import few
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from provision.declaration.spec.model import Domains
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import NodeView, Record


def with_domains(
    states: Sequence[NodeState], domains: Domains | None, groups: Mapping[str, Sequence[str]]
) -> list[NodeState]:
    """Return the nodes, each with its domain; ``groups`` are the inventory's, by node."""
    if domains is None:
        return list(states)
    found = domains_of([state.view for state in states], domains, groups)
    return [replace(state, domain=domain) for state, domain in zip(states, found, strict=True)]


def domains_of(
    views: Sequence[NodeView | NodeProblem], domains: Domains, groups: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the domain of each node, empty for one that is on its own; labels of one that is gone are unknown."""
    key = domains.node_label
    if key is None:
        return [_group_of(view.name, domains, groups) for view in views]
    return ["" if isinstance(view, NodeProblem) else view.labels.get(key, "") for view in views]


def _group_of(name: str, domains: Domains, groups: Mapping[str, Sequence[str]]) -> str:
    mine = groups.get(name, ())
    return next((group for group in domains.groups if group in mine), "")


def why_apart(
    states: Sequence[NodeState],
    views: Mapping[str, NodeView | NodeProblem],
    domains: Domains | None,
    groups: Mapping[str, Sequence[str]],
    unnamed: Mapping[str, NodeView | NodeProblem] = MappingProxyType({}),
) -> dict[str, str]:
    """Return why nodes that would have to begin with their whole domain cannot; those in flight are not in it.

    ``unnamed`` are the nodes of the fleet that the command leaves out: one that would have another driver afterwards
    keeps its whole domain from beginning.
    """
    if domains is None:
        return {}
    if reason := why_unlabelled(domains, [state.domain for state in states]):
        return dict.fromkeys((state.name for state in states if state.wants_to_begin), reason)
    problems = _problems(views, domains, groups)
    strangers = tuple(unnamed.values())
    others = tuple(zip(strangers, domains_of(strangers, domains, groups), strict=True))
    found: dict[str, list[NodeState]] = {}
    for state in states:
        if state.domain and state.wants_to_begin:
            found.setdefault(state.domain, []).append(state)
    reasons: dict[str, str] = {}
    for domain, members in found.items():
        reason = problems.get(domain) or _why_differing(domain, members) or _why_partial(domain, members, others)
        reasons |= dict.fromkeys((state.name for state in members), reason) if reason else {}
    return reasons


def why_unlabelled(domains: Domains, found: Iterable[str]) -> str:
    """Return why the domains are not known, of which ``found`` are those of all nodes; empty where they are."""
    if domains.node_label is None or any(found):
        return ""
    return f"no Node has the label {domains.node_label}, which is to name its domain: correct rollout.domains"


def _why_differing(domain: str, members: Sequence[NodeState]) -> str:
    targets = sorted({state.target for state in members})
    if len(targets) == 1:
        return ""
    return f"its domain {domain} is changed as one, and its nodes declare {few(targets)}: declare one driver for it"


def _why_partial(
    domain: str, members: Sequence[NodeState], others: Sequence[tuple[NodeView | NodeProblem, str]]
) -> str:
    targets = {state.target for state in members}
    left = [
        view.name
        for view, where in others
        if where == domain and (isinstance(view, NodeProblem) or serves_with(view.record) not in targets)
    ]
    if not left:
        return ""
    verb = "is" if len(left) == 1 else "are"
    return f"its domain {domain} is changed as one, and {few(left)} of it {verb} not named: name all of its nodes"


def serves_with(record: Record | None) -> str | None:
    """Return the driver with which a node was left in service, None where its record does not say."""
    if record is None or not record.phase.is_in_service:
        return None
    return record.origin if record.phase is Phase.RETURNED else record.target


def _problems(
    views: Mapping[str, NodeView | NodeProblem], domains: Domains, groups: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return why a domain cannot begin of which a node is not to be found; by labels it is not known which that is."""
    return {
        domain: f"{name} of its domain {domain} cannot take part: {view.message}"
        for name, view in views.items()
        if isinstance(view, NodeProblem) and (domain := _group_of(name, domains, groups))
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node of a domain that is to go back, or to lose its driver, as one.

    ``after`` is the version afterwards, None where it is not known. ``goes``: it has to be changed, or is on its way.
    ``obstacle`` is why it cannot be. ``is_named``: the command is about it.
    """

    name: str
    domain: str
    after: str | None
    goes: bool = False
    obstacle: str = ""
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a domain is not changed. ``is_mix``: to go on with a part of it would put two drivers into service."""

    reason: str
    is_mix: bool


def refusals(members: Iterable[Member], command: str) -> dict[str, Refusal]:
    """Return why domains are not changed as one, by domain."""
    found: dict[str, list[Member]] = {}
    for member in members:
        if member.domain:
            found.setdefault(member.domain, []).append(member)
    return {
        domain: refusal
        for domain, inside in found.items()
        if any(member.goes for member in inside) and (refusal := _refusal(domain, inside, command)) is not None
    }


def _unable(domain: str, members: Sequence[Member]) -> Refusal | None:
    unable = next((member for member in members if member.obstacle), None)
    if unable is None:
        return None
    return Refusal(f"{unable.name} of its domain {domain} cannot take part: {unable.obstacle}", is_mix=False)


def _refusal(domain: str, members: Sequence[Member], command: str) -> Refusal | None:
    named = [member for member in members if member.is_named]
    able = [member for member in named if not member.obstacle]
    after = dict.fromkeys(member.after for member in able if member.goes)
    left = [member.name for member in members if not member.is_named and member.after not in after]
    if left:
        verb = "is" if len(left) == 1 else "are"
        reason = f"its domain {domain} is changed as one, and {few(left)} of it {verb} not named: name all of its nodes"
        return Refusal(reason, is_mix=True)
    # A node that has no driver and gets none, such as one without GPUs in the rack, serves with none.
    versions = sorted({member.after or "" for member in able if member.goes or member.after})
    if len(versions) == 1:
        return _unable(domain, named)
    shown = few([version or "no driver" for version in versions])
    return Refusal(
        f"its domain {domain} is changed as one, and after `{command}` its nodes would have {shown}: "
        "declare the driver that all of them shall have, and `grapnel apply`",
        is_mix=True,
    )
