"""Says what the controller would do about every stack of a cluster, or about one that is yet to be applied. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.kubernetes.nodes.node_view import view_of
from provision.controller.decision.fingerprint import Part, of_spec, part
from provision.controller.decision.outlook import Comes, outlook_of
from provision.controller.nodes import see
from provision.controller.stacks.membership import members
from provision.controller.stacks.model import Stack, Unreadable
from provision.controller.stacks.status import StackStatus
from provision.declaration.spec.text.findings import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.controller.decision.outlook import Moment, Outlook
    from provision.controller.nodes import SeenNode
    from provision.controller.stacks.follower import Followed
    from provision.controller.stacks.membership import Membership
    from provision.declaration.spec.model import StackSpec
    from provision.declaration.spec.text.findings import KeyPath

_TODO: Final = frozenset({Comes.DUE, Comes.BUSY})
_STUCK: Final = frozenset({Comes.LEFT_FAILED, Comes.UNCLEAR})


ABOUT_THE_WAY: Final = frozenset({"rollout", "scheduler"})  # how nodes are changed: no node is due for these
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A key below ``spec`` with its values, as they would be written; None where it has none."""

    key: str
    before: object
    after: object
    is_about_machines: bool


def differences_of(before: StackSpec, after: StackSpec) -> tuple[Difference, ...]:
    """Return the keys that differ, in the order of the model; what stands nowhere has its default in both."""
    found = _walk(msgspec.to_builtins(before), msgspec.to_builtins(after), ())
    return tuple(
        Difference(f"spec.{dotted(path)}", one, other, str(path[0]) not in ABOUT_THE_WAY) for path, one, other in found
    )


def _walk(before: Any, after: Any, path: KeyPath) -> Iterator[tuple[KeyPath, object, object]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            yield from _walk(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
    elif before != after:
        yield path, None if before is _ABSENT else before, None if after is _ABSENT else after


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """What the controller would do for one stack.

    ``stack`` is what is declared, ``status`` what the controller has said last. Of one that is yet to be applied
    (``is_proposed``): whether the cluster has none of that name (``is_new``), why it does not use the one that it has
    (``refused_now``), in which keys that differs, and which Nodes the selector gains and loses. ``disputed`` are Nodes
    that another stack selects as well, with its name. ``is_guessed``: which nodes are due was worked out here, and not
    by the controller, which is another version, or has not looked at this declaration yet.
    """

    stack: Stack | Unreadable
    status: StackStatus
    is_proposed: bool = False
    is_new: bool = False
    refused_now: tuple[str, ...] = ()
    changes: tuple[Difference, ...] = ()
    joining: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    disputed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outlook: Outlook | None = None
    is_guessed: bool = False

    @property
    def is_change(self) -> bool:
        """Whether there is something to do."""
        if self.is_new or self.changes or self.joining or self.leaving:
            return True
        return self.outlook is not None and any(node.comes in _TODO for node in self.outlook.nodes)

    @property
    def is_stuck(self) -> bool:
        """Whether it takes a person for all of its nodes to get on."""
        if isinstance(self.stack, Unreadable) or self.disputed:
            return True
        return self.outlook is not None and any(node.comes in _STUCK for node in self.outlook.nodes)


class Planning:
    """Plans the stacks of one look at a cluster; ``place`` is what messages call it."""

    def __init__(self, followed: Mapping[str, Followed], nodes: Iterable[Node], moment: Moment, place: str) -> None:
        self._followed, self._moment = followed, moment
        self._nodes: dict[str, SeenNode] = {}
        self._views = {}
        for node in nodes:
            name = node.metadata.name
            self._nodes[name] = see(node)
            self._views[name] = view_of(name, node, place)
        self._stacks = {name: each.stack for name, each in followed.items() if isinstance(each.stack, Stack)}

    def of_cluster(self) -> tuple[StackPlan, ...]:
        """Return what would be done for every stack, in the order of their names."""
        membership = self._members(self._stacks)
        return tuple(self._plan(each.stack, each, membership) for _name, each in sorted(self._followed.items()))

    def of_proposal(self, stack: Stack) -> StackPlan:
        """Return what would be done if a stack was applied: one that is new, or in place of that of the same name."""
        before, after = self._members(self._stacks), self._members({**self._stacks, stack.name: stack})
        former = self._followed.get(stack.name)
        plan = self._plan(stack, former, after)
        if former is None:
            return replace(plan, is_proposed=True, is_new=True)
        now = former.stack
        own, then = set(after.owned.get(stack.name, ())), set(before.owned.get(stack.name, ()))
        return replace(
            plan,
            is_proposed=True,
            refused_now=now.reasons if isinstance(now, Unreadable) else (),
            changes=differences_of(now.spec, stack.spec) if isinstance(now, Stack) else (),
            joining=tuple(sorted(own - then)),
            leaving=tuple(sorted(then - own)),
        )

    def _members(self, stacks: Mapping[str, Stack]) -> Membership:
        return members(stacks.values(), {name: node.labels for name, node in self._nodes.items()})

    def _plan(self, stack: Stack | Unreadable, former: Followed | None, membership: Membership) -> StackPlan:
        status = StackStatus() if former is None else former.status
        if isinstance(stack, Unreadable) or stack.is_going:
            return StackPlan(stack=stack, status=status)
        own = membership.owned.get(stack.name, ())
        fingerprint, is_guessed = _fingerprint(stack, former)
        return StackPlan(
            stack=stack,
            status=status,
            disputed={
                node: tuple(each for each in membership.disputed[node] if each != stack.name)
                for node in membership.claimed_twice(stack.name)
            },
            outlook=outlook_of(
                stack.spec,
                fingerprint,
                {name: self._nodes[name] for name in own},
                {name: self._views[name] for name in own},
                replace(self._moment, told={each.node: each.message for each in status.troubles}),
            ),
            is_guessed=is_guessed,
        )


def _fingerprint(stack: Stack, former: Followed | None) -> tuple[str, bool]:
    """Return what nodes of a stack are brought to, and whether that is only what this version makes of it.

    What is deployed is known to the controller alone: where it has said nothing yet, that part is empty.
    """
    known = "" if former is None else former.status.fingerprint
    wanted = of_spec(stack.spec)
    if former is None or not known or not isinstance(former.stack, Stack):
        return f"{wanted}.{part(known, Part.DEPLOYED)}", True
    is_current = former.status.observed_generation == former.stack.generation
    mine = of_spec(former.stack.spec)
    if is_current and wanted == mine:
        return known, False
    return f"{wanted}.{part(known, Part.DEPLOYED)}", not is_current or mine != part(known, Part.DECLARED)
