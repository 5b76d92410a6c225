"""Judges the domains of a rollout against the fleet: their groups exist, are apart, and fit its limits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.rules.rollout.domains import DOMAINS
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.validate import nearest
from provision.declaration.spec.values.shares import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from provision.declaration.fleet.model import FleetNode
    from provision.declaration.spec.rules.remark import Remark


def members_by_group(nodes: Iterable[FleetNode]) -> dict[str, list[FleetNode]]:
    """Return the nodes of each group of the inventory."""
    found: dict[str, list[FleetNode]] = {}
    for node in nodes:
        for group in node.groups:
            found.setdefault(group, []).append(node)
    return found


def judge_domain(node: FleetNode, known: Mapping[str, Sequence[FleetNode]], fleet: int) -> Iterator[Remark]:
    """Yield what is wrong with the domain of a node of the whole inventory, which has these groups."""
    domains = node.stack.rollout.domains
    if domains is None or not domains.groups:
        return
    for place, name in enumerate(domains.groups):
        if name not in known:
            near = nearest(name, sorted(known))
            hint = f"did you mean {near}?" if near else f"groups: {few(sorted(known))}"
            yield error((*DOMAINS, "groups", place), f"no group of the inventory is named '{name}'", hint)
    mine = [group for group in domains.groups if group in node.groups]
    if len(mine) > 1:
        yield error(DOMAINS, f"{node.name} is in {few(mine)}", "a node is in one domain")
    if mine:
        yield from _judge_members(node, mine[0], known[mine[0]], fleet)


def _judge_members(node: FleetNode, domain: str, members: Sequence[FleetNode], fleet: int) -> Iterator[Remark]:
    limit = node.stack.rollout.max_unavailable
    if len(members) > count_of(limit, fleet):
        message = f"maxUnavailable allows {limit}, and the domain '{domain}' of {len(members)} nodes is changed as one"
        yield error(("rollout", "maxUnavailable"), message, "raise it, or make the domain smaller")
    elif len(members) > node.stack.rollout.max_parallel:
        message = f"the domain '{domain}' of {len(members)} nodes begins only when nothing else is under way"
        hint = f"raise maxParallel to {len(members)} at least, so that it does not hold up the others"
        yield warning(("rollout", "maxParallel"), message, hint)
    other = next((each for each in members if each.stack.driver != node.stack.driver), None)
    if other is not None:
        message = f"{node.name} and {other.name} of the domain '{domain}' declare different drivers"
        yield error(DOMAINS, message, "declare the driver for the whole domain")
