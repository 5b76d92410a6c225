"""Says which node of Slurm is which machine of the inventory. Pure.

A machine is found by its name (NodeName, else NodeHostname), and by the addresses that the operator connects to
(NodeAddr). Where both say something, they have to agree.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from provision.rollout.interface.cluster import NodeProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from provision.cluster.machine import Machine
    from provision.cluster.schedulers.slurm.answers import SlurmNode

_SEE = "NodeName, NodeHostname and NodeAddr of slurm.conf are compared with the inventory's name and address"


def match_slurm_nodes(
    names: Collection[str], machines: Mapping[str, Machine], nodes: Mapping[str, SlurmNode], where: str
) -> dict[str, SlurmNode | NodeProblem]:
    """Return the node of each machine, or why it has none; ``where`` is what messages call Slurm."""
    by_address, by_host = defaultdict(list), defaultdict(list)
    for node in nodes.values():
        by_address[node.address].append(node)
        by_host[node.hostname].append(node)
    found: dict[str, SlurmNode | NodeProblem] = {}
    for name in names:
        addresses = machines[name].addresses if name in machines else frozenset()
        named = _named(name, nodes, by_host)
        addressed = [node for address in sorted(addresses) for node in by_address[address]]
        found[name] = _agreed(name, named, addressed, where)
    return _each_once(found, where)


def _named(name: str, nodes: Mapping[str, SlurmNode], by_host: Mapping[str, list[SlurmNode]]) -> list[SlurmNode]:
    short = name.partition(".")[0]
    for each in dict.fromkeys((name, short)):
        if each in nodes:
            return [nodes[each]]
    for each in dict.fromkeys((name, short)):
        if each in by_host:
            return by_host[each]
    return []


def _agreed(name: str, named: list[SlurmNode], addressed: list[SlurmNode], where: str) -> SlurmNode | NodeProblem:
    candidates = [node for node in named if node in addressed] or named or addressed
    if not candidates:
        return NodeProblem(name=name, message=f"{where} has no node of that name or address", hint=_SEE)
    words = ", ".join(node.name for node in candidates[:3])
    if len(candidates) > 1:
        return NodeProblem(name=name, message=f"{where} has several nodes that it may be: {words}", hint=_SEE)
    if addressed and candidates[0] not in addressed:
        message = f"by its name it is node {words} of {where}, by its address {addressed[0].name}"
        return NodeProblem(name=name, message=message, hint=_SEE)
    return candidates[0]


def _each_once(found: dict[str, SlurmNode | NodeProblem], where: str) -> dict[str, SlurmNode | NodeProblem]:
    owners: dict[str, list[str]] = defaultdict(list)
    for name, node in found.items():
        if not isinstance(node, NodeProblem):
            owners[node.name].append(name)
    for node_name, names in owners.items():
        if len(names) > 1:
            message = f"node {node_name} of {where} would be {' and '.join(names[:3])} of the inventory"
            found |= {name: NodeProblem(name=name, message=message, hint=_SEE) for name in names}
    return found
