"""Which Node is which machine of the inventory: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.cluster.model import NodeProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from provision.cluster.objects import Node

_HOSTNAME: Final = "kubernetes.io/hostname"  # label that the kubelet sets


def match_nodes(
    names: Collection[str], hostnames: Mapping[str, str], nodes: Iterable[Node], where: str
) -> dict[str, Node | NodeProblem]:
    """Return the Node of every name, or why there is none; case does not matter.

    A Node is found by its name; by the machine's hostname, where that is known, as well. ``where`` is what
    messages call the cluster.
    """
    by_name: dict[str, Node] = {}
    by_hostname: dict[str, list[Node]] = {}
    for node in nodes:
        by_name[node.metadata.name.lower()] = node
        for hostname in {node.metadata.name.lower(), node.metadata.labels.get(_HOSTNAME, "").lower()}:
            by_hostname.setdefault(hostname, []).append(node)
    found: dict[str, Node | NodeProblem] = {}
    for name in names:
        named, hostname = by_name.get(name.lower()), hostnames.get(name, "").lower()
        hosts = by_hostname.get(hostname, []) if hostname else []
        found[name] = _choose(name, hostname, named, hosts, where)
    return _without_twins(found, where)


def _choose(name: str, hostname: str, named: Node | None, hosts: list[Node], where: str) -> Node | NodeProblem:
    candidates = {node.metadata.name: node for node in ([named] if named else []) + hosts}
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    called = f"{name} ({hostname})" if hostname and hostname != name.lower() else name
    if candidates:
        return NodeProblem(
            name=name,
            message=f"{called} could be several nodes of {where}: {', '.join(sorted(candidates))}",
            hint="name the machine in the inventory as its Node is named",
        )
    return NodeProblem(
        name=name,
        message=f"{called} is not a node of {where}",
        hint="`--context` chooses another cluster; `--no-cluster` is for machines that belong to none; "
        "a machine of the inventory is found by the name of its Node or by its hostname",
    )


def _without_twins(found: dict[str, Node | NodeProblem], where: str) -> dict[str, Node | NodeProblem]:
    """Two machines cannot be one Node: neither is believed."""
    names: dict[str, list[str]] = {}
    for name, each in found.items():
        if not isinstance(each, NodeProblem):
            names.setdefault(each.metadata.name, []).append(name)
    twins = {
        name: NodeProblem(
            name=name,
            message=f"node {node} of {where} has several names in the inventory: {', '.join(sorted(same))}",
            hint="keep one of them",
        )
        for node, same in names.items()
        if len(same) > 1
        for name in same
    }
    return found | twins
