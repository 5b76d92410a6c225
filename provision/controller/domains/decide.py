"""Decides which ComputeDomain has which NVLink clique, and what its status says. Pure.

A clique is one domain's from the first node of it that the scheduler gave to that domain until the domain is gone and
each of those nodes says that it is free. What is not known counts as taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from provision.controller.domains.objects import SINGLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from provision.controller.domains.objects import ComputeDomain, Place, Wish

READY, NOT_READY = "Ready", "NotReady"
_MOST_TOLD = 3  # of nodes that wait; a message is short


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Which domain has a clique, by uid, how it is called, and which nodes of it the domain was given."""

    domain: str
    namespace: str
    name: str
    nodes: tuple[str, ...] = ()


Ledger = dict[str, Hold]  # by clique


@dataclass(frozen=True, slots=True)
class Decision:
    """Who has which clique from now on, and why domains wait for nodes, by their uids."""

    ledger: Ledger
    waits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def admit(
    ledger: Mapping[str, Hold],
    domains: Mapping[str, ComputeDomain],
    wishes: Iterable[Wish],
    places: Mapping[str, Place],
) -> Decision:
    """Give cliques to the domains whose claims have nodes there; the domain that was made first comes first.

    ``domains`` are by uid, ``places`` by node. A node is given in one clique, whatever others it says that it is in.
    """
    after, waits, said = dict(ledger), dict[str, list[str]](), dict[str, set[str]]()
    for each in places.values():
        if each.domain:
            said.setdefault(each.clique, set()).add(each.domain)
    given = {node: clique for clique, hold in ledger.items() for node in hold.nodes}
    for domain, node in _in_order(domains, wishes):
        uid, place = domain.metadata.uid, places.get(node)
        if place is None:
            waits.setdefault(uid, []).append(f"{node} publishes no channel")
            continue
        hold = after.get(place.clique) or Hold(
            domain=uid, namespace=domain.metadata.namespace, name=domain.metadata.name
        )
        if hold.domain != uid or not said.get(place.clique, {uid}) <= {uid}:
            waits.setdefault(uid, []).append(f"{node} is in a clique that another ComputeDomain has")
            continue
        if given.get(node, place.clique) != place.clique:
            waits.setdefault(uid, []).append(f"{node} was given to a ComputeDomain in another clique")
            continue
        after[place.clique] = msgspec.structs.replace(hold, nodes=tuple(sorted({*hold.nodes, node})))
    return Decision(after, {uid: tuple(sorted(texts)) for uid, texts in waits.items()})


def _in_order(domains: Mapping[str, ComputeDomain], wishes: Iterable[Wish]) -> list[tuple[ComputeDomain, str]]:
    """Return the wishes that count: for a domain of the claim's namespace that is there and stays."""
    counted = {(wish.domain, wish.node) for wish in wishes if _may_ask(domains.get(wish.domain), wish)}
    found = [(domains[uid], node) for uid, node in counted]
    return sorted(found, key=lambda pair: (_age(pair[0]), pair[0].metadata.uid, pair[1]))


def _may_ask(domain: ComputeDomain | None, wish: Wish) -> bool:
    return domain is not None and is_served(domain) and domain.metadata.namespace == wish.namespace


def _age(domain: ComputeDomain) -> str:
    created = domain.metadata.creation_timestamp
    return "" if created is None else created.isoformat()


def is_served(domain: ComputeDomain) -> bool:
    """Tell whether nodes are given to a domain."""
    return not domain.is_going and not why_not_served(domain)


def why_not_served(domain: ComputeDomain) -> str:
    """Return why a domain as it was written is not served, "" where it is."""
    if domain.is_of_another:
        return "NVIDIA's controller serves it as well: take one of the two away"
    if domain.spec.channel.allocation_mode not in ("", SINGLE):
        return "allocationMode All: a claim has channel 0 alone; make it anew with Single"
    return ""


def left_by(ledger: Mapping[str, Hold], domains: Mapping[str, ComputeDomain]) -> Ledger:
    """Return the cliques of domains that are gone, or going."""
    return {
        clique: hold
        for clique, hold in ledger.items()
        if (domain := domains.get(hold.domain)) is None or domain.is_going
    }


def why_not_free(hold: Hold, places: Mapping[str, Place], gone: Collection[str]) -> str:
    """Return why a clique whose domain is gone cannot have another one yet, "" where it can.

    ``places`` were read after the domain was gone; ``gone`` are nodes that are no Nodes any more. One that says
    nothing is not free: its slices may be away for a moment.
    """
    for node in hold.nodes:
        if node in gone:
            continue
        if node not in places:
            return (
                f"{node} publishes no channel, so nobody knows whether it is free; where no pod of the domain runs "
                "there, delete its Node, or take it out of ConfigMap grapnel-compute-domains"
            )
        if places[node].domain == hold.domain:
            return f"{node} still has claims of it"
    return ""


def status_of(
    domain: ComputeDomain,
    decision: Decision,
    places: Mapping[str, Place],
    addresses: Mapping[str, str],
    trouble: str,
) -> dict[str, Any]:
    """Return the status of a domain. ``trouble`` is why it has no ResourceClaimTemplate, "" where it has."""
    uid = domain.metadata.uid
    held = {node: clique for clique, hold in decision.ledger.items() if hold.domain == uid for node in hold.nodes}
    rows = [
        {
            "name": node,
            "ipAddress": addresses.get(node, ""),
            "cliqueID": held[node],
            "index": index,
            "status": READY if node in places and places[node].domain == uid else NOT_READY,
        }
        for index, node in enumerate(sorted(held))
    ]
    is_ready = len(rows) >= domain.spec.num_nodes and all(row["status"] == READY for row in rows)
    waits = decision.waits.get(uid, ())
    more = f" and {len(waits) - _MOST_TOLD} more" if len(waits) > _MOST_TOLD else ""
    message = trouble or f"{'; '.join(waits[:_MOST_TOLD])}{more}"
    return {"status": READY if is_ready and not message else NOT_READY, "message": message, "nodes": rows}
