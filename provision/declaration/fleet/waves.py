"""Judges what a rollout shares against the fleet: all nodes declare the same, and what it names exists. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.rules.rollout.policy import DOMAINS, WAVES
from provision.declaration.spec.rules.rollout.when import ZONES
from provision.declaration.spec.rules.tenancy import without_names
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.validate import nearest
from provision.declaration.spec.values.shares import count_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from provision.declaration.fleet.model import FleetNode
    from provision.declaration.spec.model import StackSpec
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

# Keys of which a rollout has one value, and what messages call them.
SHARED: Final = {
    "waves": "other waves are",
    "windows": "other windows are",
    "blackouts": "other blackouts are",
    "zones": "other zones are",
    "domains": "other domains are",
    "gates": "other gates are",
    "order": "another order is",
    "maintenance": "other requests are",
}


def judge_shared(node: FleetNode, first: FleetNode) -> Iterator[Remark]:
    """Yield what a node declares otherwise than the ``first`` of the fleet, though it is about all of them."""
    for key, what in SHARED.items():
        own, others = (getattr(each.stack.rollout, key) for each in (node, first))
        if own != others:
            message = f"{what} declared for {first.name}: a rollout has the same {key} for all nodes"
            yield error(("rollout", key), message, "declare them once, in the file or for the group all")

    for key, mine, theirs in (
        ("waitFor", node.stack.rollout.wait_for, first.stack.rollout.wait_for),
        ("drain", node.stack.rollout.drain, first.stack.rollout.drain),
    ):
        if mine != theirs:
            message = (
                f"other pods are declared for {first.name}: a rollout treats the pods of all nodes in the same way"
            )
            yield error(("rollout", key), message, "declare it once, in the file or for the group all")

    if without_names(node.stack.tenancy) != without_names(first.stack.tenancy):
        message = f"other tenants are declared for {first.name}: quotas, priorities and queues are a cluster's"
        yield error(("tenancy",), message, "declare them once, in the file or for the group all")


def judge_selected(stack: StackSpec, hosts: Collection[str], groups: Collection[str]) -> Iterator[Remark]:
    """Yield what waves and zones name and the inventory, which has these ``hosts`` and ``groups``, does not have."""
    for index, wave in enumerate(stack.rollout.waves):
        yield from _unknown("host", wave.hosts, hosts, (*WAVES, index))
        yield from _unknown("group", wave.groups, groups, (*WAVES, index))
    if stack.rollout.zones is not None:
        yield from _unknown("group", stack.rollout.zones.groups, groups, ZONES)


def _unknown(kind: str, wanted: Sequence[str], known: Collection[str], path: KeyPath) -> Iterator[Remark]:
    for place, name in enumerate(wanted):
        if name not in known:
            near = nearest(name, sorted(known))
            hint = f"did you mean {near}?" if near else f"{kind}s: {few(sorted(known))}"
            yield error((*path, f"{kind}s", place), f"no {kind} of the inventory is named '{name}'", hint)


# Judges the domains of a rollout against the fleet: their groups exist, are apart, and fit its limits.


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
