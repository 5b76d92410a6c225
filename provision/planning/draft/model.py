"""Defines a draft: what is said about a node, what cannot be said, and what a part would change if grapnel had it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from provision.base import decoding
from provision.declaration.spec.model import StackSpec

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import Item, NodePlan, Problem

Path = tuple[str, ...]
Plan = Callable[["NodeFacts", StackSpec], "NodePlan"]
Values = Mapping[Path, Any]


@dataclass(frozen=True)
class Said:
    """One key of the declaration below ``spec``, its value as it is written, and where that is from."""

    path: Path
    value: object
    reason: str


@dataclass(frozen=True)
class Unsaid:
    """Something about a node that no key of a declaration says, and what a person can do about it."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True)
class Offer:
    """A part that grapnel does not have yet: what ``key: true`` would change on the node, or what is in its way."""

    key: str
    items: tuple[Item, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Section:
    """What is found out about one section of the declaration."""

    said: tuple[Said, ...] = ()
    unsaid: tuple[Unsaid, ...] = ()
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True)
class NodeDraft:
    """What is said about one node; ``plan`` is what apply would do under it."""

    said: tuple[Said, ...]
    plan: NodePlan
    unsaid: tuple[Unsaid, ...] = ()
    offers: tuple[Offer, ...] = ()
    stack: StackSpec = field(default_factory=StackSpec)


def stack_of(values: Values) -> StackSpec:
    """Return the declaration that holds values, and nothing else but defaults."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        level = tree
        for key in path[:-1]:
            level = level.setdefault(key, {})
        level[path[-1]] = value
    return decoding.convert(tree, StackSpec)


def values_of(said: tuple[Said, ...]) -> dict[Path, Any]:
    """Return the values by their keys."""
    return {each.path: each.value for each in said}


def default_of(path: Path) -> Any:
    """Return the default of a key, as it would be written; None where that is nothing."""
    value: Any = msgspec.to_builtins(StackSpec())
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
