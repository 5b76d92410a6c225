"""Says which stack owns which Node, by the labels of Nodes. Pure.

A Node that two stacks select belongs to neither of them: nothing is done about it until one of them lets it go. What
it has stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from provision.stacks.model import Stack


@dataclass(frozen=True, slots=True)
class Membership:
    """``owned`` are the Nodes of each stack, in order, ``disputed`` the names of the stacks that select a Node."""

    owned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    disputed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def claimed_twice(self, stack: str) -> tuple[str, ...]:
        """Return the Nodes that a stack selects, and another one as well."""
        return tuple(sorted(node for node, stacks in self.disputed.items() if stack in stacks))


def members(stacks: Iterable[Stack], labels: Mapping[str, Mapping[str, str]]) -> Membership:
    """Return who owns which of the Nodes with these ``labels``; a stack that is going owns none."""
    claims: dict[str, list[str]] = {}
    owned: dict[str, set[str]] = {}
    for stack in stacks:
        if stack.is_going:
            continue
        owned[stack.name] = {node for node, each in labels.items() if stack.selector.matches(each)}
        for node in owned[stack.name]:
            claims.setdefault(node, []).append(stack.name)
    disputed = {node: tuple(sorted(names)) for node, names in claims.items() if len(names) > 1}
    return Membership({name: tuple(sorted(nodes - disputed.keys())) for name, nodes in owned.items()}, disputed)
