"""Says which stack owns which Node, by the labels of Nodes. Pure.

A Node that two stacks select belongs to neither of them: nothing is done about it until one of them lets it go. What
it has stays as it is. A stack that cannot be used claims its Nodes as well, so that a mistake in one stack is no order
to another. A stack that is being deleted has what no other one selects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from provision.controller.stacks.model import Stack, Unreadable


@dataclass(frozen=True, slots=True)
class Claim:
    """What the ``labels`` of a Node come to: the stacks that select it, by name, in order.

    ``going`` are those of them that are being deleted, ``stacks`` the others.
    """

    labels: Mapping[str, str]
    stacks: tuple[str, ...]
    going: tuple[str, ...]

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose the Node is; it belongs to nobody where there are several."""
        return self.stacks or self.going[:1]


@dataclass(frozen=True, slots=True)
class Membership:
    """``owned`` are the Nodes of each stack, in order, ``disputed`` the names of the stacks that select a Node.

    ``claims`` and ``stacks`` are what both were found from: every Node, and the stacks as they were.
    """

    owned: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    disputed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    stacks: frozenset[tuple[str, str, int, bool]] = frozenset()

    def claimed_twice(self, stack: str) -> tuple[str, ...]:
        """Return the Nodes that a stack selects, and another one as well."""
        return tuple(sorted(node for node, stacks in self.disputed.items() if stack in stacks))

    def selects(self, stack: str, node: str) -> bool:
        """Tell whether a stack selects a Node, be it alone or not."""
        return node in self.owned.get(stack, ()) or stack in self.disputed.get(node, ())


def members(
    stacks: Iterable[Stack | Unreadable], labels: Mapping[str, Mapping[str, str]], former: Membership | None = None
) -> Membership:
    """Return who owns which of the Nodes with these ``labels``.

    What ``former`` knows of Nodes whose labels are the same objects as then is taken from it.
    """
    selecting = sorted((stack for stack in stacks if stack.selector is not None), key=lambda stack: stack.name)
    identities = frozenset((stack.name, stack.uid, stack.generation, stack.is_going) for stack in selecting)
    known = former.claims if former is not None and former.stacks == identities else {}
    claims = {
        node: claim if (claim := known.get(node)) is not None and claim.labels is each else _claim(each, selecting)
        for node, each in labels.items()
    }
    owned: dict[str, list[str]] = {stack.name: [] for stack in selecting}
    disputed: dict[str, tuple[str, ...]] = {}
    for node, claim in claims.items():
        owners = claim.owners
        if len(owners) == 1:
            owned[owners[0]].append(node)
        elif owners:
            disputed[node] = owners
    return Membership({name: tuple(sorted(nodes)) for name, nodes in owned.items()}, disputed, claims, identities)


def _claim(labels: Mapping[str, str], selecting: Sequence[Stack | Unreadable]) -> Claim:
    found = [stack for stack in selecting if stack.selector is not None and stack.selector.matches(labels)]
    return Claim(
        labels,
        tuple(stack.name for stack in found if not stack.is_going),
        tuple(stack.name for stack in found if stack.is_going),
    )
