"""Reads what `ansible-inventory --list --export` printed: hosts, their groups in order of precedence, their variable.

Pure. The order is Ansible's own (lib/ansible/inventory/helpers.py, sort_groups): depth below `all`, then
`ansible_group_priority`, then name; a later group wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.base.decoding import decoder_of
from provision.declaration.fleet.endpoint import Endpoint, parse_endpoint
from provision.declaration.fleet.errors import InventoryError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "grapnel_stack"
_PRIORITY: Final = "ansible_group_priority"


@dataclass(frozen=True)
class Host:
    """A machine; `groups` weakest first; `stack` is its own variable as it stands, None without one."""

    name: str
    groups: tuple[str, ...]
    endpoint: Endpoint
    stack: object = None


@dataclass(frozen=True)
class Inventory:
    """Machines in the order of their names, and the variable of every group that has one."""

    hosts: tuple[Host, ...]
    group_stacks: Mapping[str, object]


class _Group(msgspec.Struct):
    hosts: list[str] = []
    children: list[str] = []
    vars: dict[str, Any] = {}


class _Meta(msgspec.Struct):
    hostvars: dict[str, dict[str, Any]] = {}


def parse_inventory(text: str) -> Inventory:
    """Return the inventory; raises InventoryError for text that ansible-inventory would not print."""
    try:
        raw = decoder_of(dict[str, msgspec.Raw]).decode(text)
        meta = decoder_of(_Meta).decode(raw.pop("_meta", msgspec.Raw(b"{}")))
        groups = {name: decoder_of(_Group).decode(each) for name, each in raw.items()}
    except msgspec.DecodeError as error:
        raise InventoryError(f"ansible-inventory did not print an inventory: {error}") from error
    stacks = {name: group.vars[VARIABLE] for name, group in groups.items() if group.vars.get(VARIABLE) is not None}
    order = _order(groups)
    hosts = (
        _host(name, sorted(members, key=order.__getitem__), groups, meta.hostvars.get(name, {}))
        for name, members in _memberships(groups).items()
    )
    return Inventory(tuple(sorted(hosts, key=lambda host: _natural(host.name))), stacks)


def _host(name: str, members: list[str], groups: Mapping[str, _Group], own: Mapping[str, Any]) -> Host:
    variables = {key: value for group in members if group in groups for key, value in groups[group].vars.items()}
    return Host(name, tuple(members), parse_endpoint(name, {**variables, **own}), own.get(VARIABLE))


def _order(groups: Mapping[str, _Group]) -> dict[str, tuple[int, int, str]]:
    """Return each group's place in the precedence: a group's depth is its longest way from `all`."""
    depths = dict.fromkeys(_all_names(groups), 0)
    pending = ["all"]
    while pending:
        parent = pending.pop()
        for child in groups.get(parent, _Group()).children:
            if depths[child] <= depths[parent]:
                depths[child] = depths[parent] + 1
                pending.append(child)
    return {name: (depth, _priority(groups.get(name, _Group())), name) for name, depth in depths.items()}


def _priority(group: _Group) -> int:
    try:
        return int(group.vars.get(_PRIORITY, 1))
    except (TypeError, ValueError):
        return 1


def _memberships(groups: Mapping[str, _Group]) -> dict[str, set[str]]:
    """Return the groups of every host: those that list it, and all above them."""
    parents: dict[str, set[str]] = {name: set() for name in _all_names(groups)}
    for name, group in groups.items():
        for child in group.children:
            parents[child].add(name)
    members: dict[str, set[str]] = {}
    for name, group in groups.items():
        above = _above(name, parents)
        for host in group.hosts:
            members.setdefault(host, {"all"}).update(above)
    return members


def _above(group: str, parents: Mapping[str, set[str]]) -> set[str]:
    found = {group}
    pending = [group]
    while pending:
        new = parents[pending.pop()] - found
        found |= new
        pending += new
    return found


def _all_names(groups: Mapping[str, _Group]) -> set[str]:
    """Return every group's name; Ansible prints no entry for an empty group."""
    return {"all", *groups, *(child for group in groups.values() for child in group.children)}


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
