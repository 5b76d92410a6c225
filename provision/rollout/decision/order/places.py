"""Says where each node has its place in a rollout, for those who watch it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.rollout.interface.standing import Members

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import NodeState


def domains_of(nodes: Iterable[NodeState]) -> tuple[Members, ...]:
    """Return the domains with their nodes, in the order in which they come up."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.domain:
            found.setdefault(node.domain, []).append(node.name)
    return tuple(Members(title, tuple(names)) for title, names in found.items())


def waves_of(nodes: Iterable[NodeState], policy: Policy) -> tuple[Members, ...]:
    """Return the waves with their nodes, in their order; those without any are left out."""
    found: dict[int, list[str]] = {}
    for node in nodes:
        if node.wave is not None:
            found.setdefault(node.wave, []).append(node.name)
    return tuple(Members(policy.waves[index].title, tuple(found[index])) for index in sorted(found))
