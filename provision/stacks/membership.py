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
class Claim:
    """What the ``labels`` of a Node come to: the ``stacks`` that select it, by name, in order."""

    labels: Mapping[str, str]
    stacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Membership:
    """``owned`` are the Nodes of each stack, in order, ``disputed`` the names of the stacks that select a Node.

    ``claims`` and ``stacks`` are what both were found from: every Node, and the stacks with their generations.
    """

    owned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    disputed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    stacks: frozenset[tuple[str, str, int]] = frozenset()

    def claimed_twice(self, stack: str) -> tuple[str, ...]:
        """Return the Nodes that a stack selects, and another one as well."""
        return tuple(sorted(node for node, stacks in self.disputed.items() if stack in stacks))


def members(
    stacks: Iterable[Stack], labels: Mapping[str, Mapping[str, str]], former: Membership | None = None
) -> Membership:
    """Return who owns which of the Nodes with these ``labels``; a stack that is going owns none.

    What ``former`` knows of Nodes whose labels are the same objects as then is taken from it.
    """
    living = sorted((stack for stack in stacks if not stack.is_going), key=lambda stack: stack.name)
    identities = frozenset((stack.name, stack.uid, stack.generation) for stack in living)
    known = former.claims if former is not None and former.stacks == identities else {}
    claims = {
        node: claim
        if (claim := known.get(node)) is not None and claim.labels is each
        else Claim(each, tuple(stack.name for stack in living if stack.selector.matches(each)))
        for node, each in labels.items()
    }
    owned: dict[str, list[str]] = {stack.name: [] for stack in living}
    disputed: dict[str, tuple[str, ...]] = {}
    for node, claim in claims.items():
        if len(claim.stacks) == 1:
            owned[claim.stacks[0]].append(node)
        elif claim.stacks:
            disputed[node] = claim.stacks
    return Membership({name: tuple(sorted(nodes)) for name, nodes in owned.items()}, disputed, claims, identities)
