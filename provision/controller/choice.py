"""Chooses which nodes of a stack a round is about. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from provision.controller.attempts import key_of
from provision.controller.fingerprint import of_node, of_try

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from provision.controller.attempts import Attempts
    from provision.controller.nodes import SeenNode
    from provision.stacks.model import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be brought about: a stack, with its nodes.

    ``members`` are all of them, ``wanted`` what each is brought to, ``keys`` what each is tried with. ``due`` are those
    that a round is needed for now, ``joining`` those of them that nobody uses yet. ``barred`` are those that a rollout
    has left failed with this declaration; ``bars`` is what says so on a Node. ``left`` are those that a stack that was
    deleted waits for.
    """

    stack: Stack
    members: Mapping[str, SeenNode]
    wanted: Mapping[str, str]
    keys: Mapping[str, str]
    due: frozenset[str]
    joining: frozenset[str]
    barred: frozenset[str]
    bars: Mapping[str, str]
    left: frozenset[str] = frozenset()

    def without(self, nodes: Collection[str]) -> Order:
        """Return what is left of it while something else is done about these nodes."""
        return replace(self, due=self.due.difference(nodes), joining=self.joining.difference(nodes))

    def is_as_declared(self, name: str) -> bool:
        """Tell whether a node is what the stack declares, as far as that is known without asking it."""
        return not is_outstanding(self.members[name], self.wanted[name])


def choose(stack: Stack, fingerprint: str, members: Mapping[str, SeenNode], attempts: Attempts, now_s: float) -> Order:
    """Return what is to be done about a stack now."""
    wanted = {name: of_node(fingerprint, node) for name, node in members.items()}
    keys = {name: key_of(node, wanted[name]) for name, node in members.items()}
    bars = {name: of_try(fingerprint, node) for name, node in members.items()}
    barred = frozenset(name for name, node in members.items() if _is_barred(node, bars[name], stack))
    due = frozenset(
        name
        for name, node in members.items()
        if name not in barred
        and (is_outstanding(node, wanted[name]) or node.is_drifted)
        and not is_out_of_reach(node)
        and attempts.is_due(name, keys[name], now_s)
    )
    return Order(
        stack=stack,
        members=members,
        wanted=wanted,
        keys=keys,
        due=due,
        joining=frozenset(name for name in due if members[name].is_joining and members[name].record is None),
        barred=barred,
        bars=bars,
    )


def is_outstanding(node: SeenNode, wanted: str) -> bool:
    """Tell whether something is left to do about a node."""
    return node.as_declared != wanted or node.is_joining or node.is_in_flight or node.is_retried


def is_out_of_reach(node: SeenNode) -> bool:
    """Tell whether nothing can be done on a node: no kubelet would start a pod. A rollout has its own patience."""
    return node.is_silent and not node.is_in_flight


def _is_barred(node: SeenNode, bar: str, stack: Stack) -> bool:
    """Tell whether a node was left failed by a rollout to this declaration.

    Where nothing says by which one, because whoever left it was killed before that was written, or was a person, the
    driver does that it was to have.
    """
    if not node.is_left_failed or node.record is None:
        return False
    if node.failed:
        return node.failed == bar
    version = stack.spec.driver.version if stack.spec.driver.enabled else None
    return version is None or node.record.target == version
