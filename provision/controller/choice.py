"""Chooses which nodes of a stack a round is about. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.controller.attempts import key_of
from provision.controller.fingerprint import of_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.controller.attempts import Attempts
    from provision.controller.nodes import SeenNode
    from provision.stacks.model import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What follows from one node and what its stack declares.

    ``wanted`` is the fingerprint that it is brought to, ``key`` what it is tried with. ``is_outstanding``: something is
    left to do about it. ``is_barred``: a rollout has left it failed with this declaration.
    """

    wanted: str
    key: str
    is_outstanding: bool
    is_barred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be brought about: a stack, with its nodes.

    ``members`` are all of them, ``targets`` what follows for each from ``fingerprint``, which is the stack's. ``due``
    are those that a round is needed for now, ``joining`` those of them that nobody uses yet.
    """

    stack: Stack
    fingerprint: bytes
    members: Mapping[str, SeenNode]
    targets: Mapping[str, Target]
    due: frozenset[str]
    joining: frozenset[str]

    @property
    def barred(self) -> frozenset[str]:
        """The nodes that a rollout has left failed with this declaration."""
        return frozenset(name for name, target in self.targets.items() if target.is_barred)


def choose(  # noqa: PLR0913 - what a choice depends on
    stack: Stack,
    fingerprint: bytes,
    members: Mapping[str, SeenNode],
    attempts: Attempts,
    now_s: float,
    *,
    former: Order | None = None,
) -> Order:
    """Return what is to be done about a stack now.

    What ``former``, an earlier order of the stack, knows of nodes that have not changed since is taken from it: of
    thousands, few change between two turns.
    """
    if former is None or former.fingerprint != fingerprint:
        targets = {name: _target(fingerprint, node) for name, node in members.items()}
    else:
        seen, known = former.members, former.targets
        targets = {
            name: known[name] if seen.get(name) is node else _target(fingerprint, node)
            for name, node in members.items()
        }
    due = frozenset(
        name
        for name, target in targets.items()
        if not target.is_barred
        and (target.is_outstanding or members[name].is_drifted)
        and attempts.is_due(name, target.key, now_s)
    )
    return Order(
        stack=stack,
        fingerprint=fingerprint,
        members=members,
        targets=targets,
        due=due,
        joining=frozenset(name for name in due if members[name].is_joining and members[name].record is None),
    )


def _target(fingerprint: bytes, node: SeenNode) -> Target:
    wanted = of_node(fingerprint, node)
    return Target(
        wanted=wanted,
        key=key_of(node, wanted),
        is_outstanding=node.as_declared != wanted or node.is_joining or node.is_in_flight or node.is_retried,
        is_barred=node.failed == wanted and node.is_left_failed,
    )
