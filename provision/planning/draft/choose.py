"""Chooses between values of a key by the plans that follow from them: the smallest plan wins, else the first value."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from provision.planning.draft.model import Offer, Path, Plan, Said, Values, default_of, stack_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan, Role

Value = TypeVar("Value")
OFF: Final[Values] = {("driver", "enabled"): False, ("runtime", "enabled"): False, ("plugin", "enabled"): False}


@dataclass
class Choosing:
    """One section of one node: what has been chosen so far, and the plan under which only this section is on."""

    facts: NodeFacts
    plan: Plan
    section: str
    role: Role
    said: list[Said] = field(default_factory=list)

    def say(self, key: str, value: object, reason: str) -> None:
        """Say what is known, without a choice; nothing where it is a value that no declaration may have."""
        said = Said((self.section, key), value, reason)
        if is_allowed(said):
            self.said.append(said)

    def say_best(
        self, key: str, values: Sequence[Value], reason: str, *, reasons: Mapping[Value, str] = MappingProxyType({})
    ) -> Value:
        """Say the value with the smallest plan, the first one of several; the default goes without saying."""
        best = min(values, key=lambda value: self._size({(self.section, key): value}))
        if msgspec.to_builtins(best) != default_of((self.section, key)):
            self.say(key, best, reasons.get(best, reason))
        return best

    def outcome(self, *, enabled: bool = True) -> NodePlan:
        """Return what would be done with what has been said, by the section's own role."""
        return self._planned({(self.section, "enabled"): enabled})

    def settle(self, *, is_ours: bool, reason: str) -> tuple[Offer, ...]:
        """Say whether the section is on: where grapnel has it already, or where nothing would change.

        Otherwise return what would change.
        """
        plan = self.outcome()
        items = tuple(item for item in plan.items if item.role is self.role)
        if is_ours or not (items or plan.problems):
            self.said.insert(0, Said((self.section, "enabled"), True, reason))
            return ()
        self.said.insert(0, Said((self.section, "enabled"), False, _why_off(len(items), len(plan.problems))))
        return (Offer(f"{self.section}.enabled", items, plan.problems),)

    def _size(self, more: Values) -> tuple[int, int]:
        plan = self._planned({(self.section, "enabled"): True, **more})
        return len(plan.problems), len(plan.items)

    def _planned(self, more: Values) -> NodePlan:
        chosen: dict[Path, object] = {each.path: each.value for each in self.said}
        return self.plan(self.facts, stack_of({**OFF, **chosen, **more}))


def is_allowed(said: Said) -> bool:
    """Tell whether a declaration may have a value: root of the node may have written anything where it is from."""
    try:
        stack_of({said.path: said.value})
    except msgspec.ValidationError:
        return False
    return True


def _why_off(items: int, problems: int) -> str:
    if problems:
        return "true is refused as the node is: `grapnel plan` then says why"
    return f"true would change {items} thing{'s' * (items != 1)}, which `grapnel plan` then shows"
