"""Chooses which nodes of a stack a round is about, and which of them get their former driver again. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from provision.controller.decision.attempts import key_of
from provision.controller.decision.claim import contradiction
from provision.controller.decision.fingerprint import of_node, of_try

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from provision.controller.decision.attempts import Attempts
    from provision.controller.nodes import SeenNode
    from provision.controller.stacks.model import Stack
    from provision.declaration.spec.model import StackSpec

NOT_HEARD: Final = "its kubelet is not heard of"
ASKED_LATER: Final = "it is not as declared, and is looked at again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What follows from one node and what its stack declares.

    ``wanted`` is the fingerprint that it is brought to, ``key`` what it is tried with, ``bar`` what says on its Node
    that a rollout has left it failed with this declaration; ``is_barred``: that is so. ``is_outstanding``: something is
    left to do about it. ``doubt`` is what contradicts that it is as declared, although it claims to be.
    """

    wanted: str
    key: str
    bar: str
    is_outstanding: bool
    is_barred: bool
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be brought about: a stack, with its nodes.

    ``members`` are all of them, ``targets`` what follows for each from ``fingerprint``, which is the stack's. ``due``
    are those that a round is needed for now, ``joining`` those of them that no pod uses yet. ``left`` are those that a
    stack that was deleted waits for. ``back`` are those of the due ones that are to have their former driver again.
    """

    stack: Stack
    fingerprint: str
    members: Mapping[str, SeenNode]
    targets: Mapping[str, Target]
    due: frozenset[str]
    joining: frozenset[str]
    left: frozenset[str] = frozenset()
    back: frozenset[str] = frozenset()

    @property
    def barred(self) -> frozenset[str]:
        """The nodes that a rollout has left failed with this declaration."""
        return frozenset(name for name, target in self.targets.items() if target.is_barred)

    @property
    def left_out(self) -> dict[str, str]:
        """The nodes that are not as declared and are not asked now, and why: it is not known what they have.

        Nodes left failed are among them: a retry begins another round, which asks them first.
        """
        return {
            name: NOT_HEARD if is_out_of_reach(self.members[name]) else ASKED_LATER
            for name, target in self.targets.items()
            if name not in self.due and (target.is_outstanding or target.is_barred)
        }

    def without(self, nodes: Collection[str]) -> Order:
        """Return what is left of it while something else is done about these nodes."""
        due, joining, back = (each.difference(nodes) for each in (self.due, self.joining, self.back))
        return replace(self, due=due, joining=joining, back=back)

    def only(self, nodes: Collection[str]) -> Order:
        """Return what is to be done about these nodes."""
        return self.without(self.due.difference(nodes))

    def only_in_flight(self) -> Order:
        """Return what is left of it where nothing further is to begin: nodes that are in the middle of an upgrade."""
        return self.without([name for name in self.due if not self.members[name].is_in_flight])


def choose(
    stack: Stack,
    fingerprint: str,
    members: Mapping[str, SeenNode],
    attempts: Attempts,
    now_s: float,
    *,
    former: Order | None = None,
    marking: Collection[str] = (),
) -> Order:
    """Return what is to be done about a stack now.

    On the nodes of ``marking``, it is still to be written that they are as declared. What ``former``, an earlier order
    of the stack, knows of nodes that have not changed since is taken from it: of thousands, few change between two
    turns.
    """
    if former is None or former.fingerprint != fingerprint:
        targets = {name: _target(stack, fingerprint, node) for name, node in members.items()}
    else:
        seen, known = former.members, former.targets
        targets = {
            name: known[name] if seen.get(name) is node else _target(stack, fingerprint, node)
            for name, node in members.items()
        }
    due = frozenset(
        name
        for name, target in targets.items()
        if not target.is_barred
        and (target.is_outstanding or members[name].is_drifted)
        and not is_out_of_reach(members[name])
        and attempts.is_due(
            name,
            target.key,
            now_s,
            members[name].driver,
            claims=members[name].as_declared == target.wanted or name in marking,
        )
    )
    if due:  # whoever goes through a rollout knows what becomes of those that are out of service
        due |= {name for name, node in members.items() if node.is_in_flight}
    return Order(
        stack=stack,
        fingerprint=fingerprint,
        members=members,
        targets=targets,
        due=due,
        joining=frozenset(name for name in due if members[name].is_joining and members[name].record is None),
    )


def _target(stack: Stack, fingerprint: str, node: SeenNode) -> Target:
    wanted, bar = of_node(fingerprint, node), of_try(fingerprint, node)
    doubt = contradiction(node, stack.spec)
    return Target(
        wanted=wanted,
        key=key_of(node, wanted),
        bar=bar,
        is_outstanding=bool(doubt) or is_unclaimed(node, wanted),
        is_barred=is_barred(node, bar, stack.spec),
        doubt=doubt,
    )


def is_unclaimed(node: SeenNode, wanted: str) -> bool:
    """Tell whether a node does not even claim to be as declared, or is being changed."""
    return node.as_declared != wanted or node.is_joining or node.is_in_flight or node.is_retried


def is_out_of_reach(node: SeenNode) -> bool:
    """Tell whether nothing can be done on a node: no kubelet would start a pod. A rollout has its own patience."""
    return node.is_silent and not node.is_in_flight


def is_barred(node: SeenNode, bar: str, spec: StackSpec) -> bool:
    """Tell whether a node was left failed by a rollout to this declaration.

    Where nothing says by which one, because whoever left it was killed before that was written, or was a person, the
    driver does that it was to have.
    """
    if not node.is_left_failed or node.record is None:
        return False
    if node.failed:
        return node.failed == bar
    version = spec.driver.version if spec.driver.enabled else None
    return version is None or node.record.target == version


def with_way_back(order: Order, attempts: Attempts, now_s: float) -> Order:
    """Return the order with the nodes that go back; what they are due for otherwise waits for that."""
    wanted = {name: node for name, node in order.members.items() if is_wanted(node)}
    if not wanted:
        return order
    targets = {name: _back_target(order.targets[name], node) for name, node in wanted.items()}
    back = frozenset(
        name
        for name, node in wanted.items()
        if not is_out_of_reach(node) and attempts.is_due(name, targets[name].key, now_s)
    )
    rest = order.without(wanted)
    return replace(rest, targets={**order.targets, **targets}, due=rest.due | back, back=back)


def is_wanted(node: SeenNode) -> bool:
    """Tell whether a node is to have its former driver again, as was asked for."""
    return node.record is not None and bool(node.record.back_for)


def _back_target(target: Target, node: SeenNode) -> Target:
    """Return what follows for a node that goes back: its tries are others than those of its declaration.

    What was asked before the record changed the last time is not what is asked now.
    """
    assert node.record is not None  # of those that are wanted
    wanted = f"back for {node.record.back_for} from {node.record.since.isoformat()}"
    return replace(target, wanted=wanted, key=key_of(node, wanted), is_outstanding=True, is_barred=False)
