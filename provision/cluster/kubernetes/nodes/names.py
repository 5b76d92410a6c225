"""Matches machines of the inventory with Nodes. Pure.

Evidence is what the operator says of the machine: its name in the inventory, and the address that is connected to. What
a machine says of itself (hostname, machine id) can cost it its own match and never makes one, so that nobody takes
another machine's Node. What a Node says of itself (addresses, machine id) counts less than its name, which the
API server has seen proven: a machine that is named as its Node loses it to no other Node's words.

| the Node of that name | Nodes at the address | it is |
|---|---|---|
| there is one | that one among them | that one |
| there is one | none | that one, unless the machine's own words lead elsewhere |
| there is one | others | that one if the machine has its machine id, else refused: both are named |
| there is none | one | that one, unless the machine's own words lead elsewhere |
| there is none | several | refused |
| there is none | none | refused, whatever the machine says |
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.machine import Machine
from provision.rollout.interface.cluster import NodeProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from provision.cluster.kubernetes.objects.nodes import Node

_REACHED_AT: Final = frozenset({"InternalIP", "ExternalIP"})
_MACHINE_ID: Final = re.compile(r"[0-9a-f]{32}")
_RENAME: Final = "give the machine the name of its Node in the inventory"
_NOBODY: Final = Machine()


def match_nodes(
    names: Collection[str], machines: Mapping[str, Machine], nodes: Iterable[Node], where: str
) -> dict[str, Node | NodeProblem]:
    """Return the Node of every name, or why there is none; case does not matter.

    ``where`` is what messages call the cluster.
    """
    directory = _Directory.of(nodes)
    matches = {name: _Match(name, machines.get(name, _NOBODY), directory, where).decide() for name in names}
    return _without_twins(matches, where)


@dataclass(frozen=True, slots=True)
class _Directory:
    """Nodes by what they are found by."""

    by_name: Mapping[str, Node]
    by_address: Mapping[str, Mapping[str, Node]]
    by_machine_id: Mapping[str, Mapping[str, Node]]

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> _Directory:
        by_name: dict[str, Node] = {}
        by_address: dict[str, dict[str, Node]] = {}
        by_machine_id: dict[str, dict[str, Node]] = {}
        for node in nodes:
            by_name[node.metadata.name.lower()] = node
            for address in _addresses(node):
                by_address.setdefault(address, {})[node.metadata.name] = node
            if machine_id := _machine_id(node.status.node_info.machine_id):
                by_machine_id.setdefault(machine_id, {})[node.metadata.name] = node
        return cls(by_name, by_address, by_machine_id)


@dataclass(frozen=True, slots=True)
class _Match:
    """One machine and what there is to choose from."""

    name: str
    machine: Machine
    directory: _Directory
    where: str

    def decide(self) -> Node | NodeProblem:
        named = self.directory.by_name.get(self.name.lower())
        there = self._nodes_at_its_addresses()
        if named is not None and (named.metadata.name in there or self._has_id_of(named)):
            return named
        if named is not None and there:
            return self._problem(
                f"is node {named.metadata.name} of {self.where} by its name, and {_several(there)} by its address "
                f"{', '.join(sorted(self.machine.addresses))}",
                "give the machine the name and the address (`ansible_host`) of one Node",
            )
        if named is not None:
            return self._unless_in_doubt(named, self._says_another_id(named) or self._says_another_name(named))
        if len(there) == 1:
            (node,) = there.values()
            doubt = self._says_another_id(node) or self._says_another_name(node) or self._has_id_of_several()
            return self._unless_in_doubt(node, doubt)
        if there:
            return self._problem(f"could be several nodes of {self.where}: {', '.join(sorted(there))}", _RENAME)
        return self._unknown()

    def _nodes_at_its_addresses(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for address in self.machine.addresses:
            found.update(self.directory.by_address.get(_address(address), {}))
        return found

    def _has_id_of(self, node: Node) -> bool:
        own = _machine_id(self.machine.machine_id)
        return bool(own) and own == _machine_id(node.status.node_info.machine_id)

    def _says_another_id(self, node: Node) -> str:
        own, theirs = _machine_id(self.machine.machine_id), _machine_id(node.status.node_info.machine_id)
        return f"has machine id {own}, not {theirs}" if own and theirs and own != theirs else ""

    def _says_another_name(self, node: Node) -> str:
        other = self.directory.by_name.get(self.machine.hostname.lower())
        return f"calls itself {other.metadata.name}" if other is not None and other is not node else ""

    def _has_id_of_several(self) -> str:
        same = self.directory.by_machine_id.get(_machine_id(self.machine.machine_id), {})
        return f"has the machine id of {_several(same)}" if len(same) > 1 else ""

    def _unless_in_doubt(self, node: Node, doubt: str) -> Node | NodeProblem:
        if not doubt:
            return node
        return self._problem(
            f"seems to be node {node.metadata.name} of {self.where}, but {doubt}",
            f"check that `ansible_host` leads to the right machine; {_RENAME}, with an address of that Node",
        )

    def _unknown(self) -> NodeProblem:
        hostname = self.machine.hostname
        called = f" ({hostname})" if hostname and hostname.lower() != self.name.lower() else ""
        return self._problem(
            f"is not a node of {self.where}",
            "choose another cluster with `--context`, or `--no-cluster` for machines without one; a machine is found "
            "by the name of its Node, or by the Node's address in `ansible_host`",
            called=called,
        )

    def _problem(self, message: str, hint: str, *, called: str = "") -> NodeProblem:
        return NodeProblem(name=self.name, message=f"{self.name}{called} {message}", hint=hint)


def _addresses(node: Node) -> Iterator[str]:
    for each in node.status.addresses:
        if each.type in _REACHED_AT and (address := _address(each.address)):
            yield address


def _address(text: str) -> str:
    """Return an address in its one spelling, empty for one that says nothing of which machine it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    is_vague = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return "" if is_vague else str(address)


def _machine_id(text: str) -> str:
    """Return the id as machine-id(5) has it, empty for anything else, such as "uninitialized"."""
    plain = text.strip().lower().replace("-", "")
    return plain if _MACHINE_ID.fullmatch(plain) else ""


def _several(nodes: Mapping[str, Node]) -> str:
    return f"node{'' if len(nodes) == 1 else 's'} {', '.join(sorted(nodes))}"


def _without_twins(found: dict[str, Node | NodeProblem], where: str) -> dict[str, Node | NodeProblem]:
    """Two machines cannot be one Node: the operator says so of both, and neither is believed."""
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
