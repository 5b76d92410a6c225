"""Defines the labels and taints that a declaration has for a Node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.spec.model import StackSpec


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """Labels by key, and the values of taints by key and effect."""

    labels: Mapping[str, str]
    taints: Mapping[tuple[str, str], str]

    def __bool__(self) -> bool:
        """Whether anything is declared."""
        return bool(self.labels or self.taints)


@dataclass(frozen=True, slots=True)
class MarkChange:
    """How a Node differs from its marks. ``changes`` are done, ``conflicts`` are left to whoever has set the values.

    ``left`` were ours, are to be taken away, and have another value by now: they stay.
    """

    changes: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


NO_MARKS: Final = NodeMarks({}, {})


def declared_marks(stack: StackSpec) -> NodeMarks:
    """Return what a declaration has for its Node."""
    taints = {(each.key, each.effect.value): each.value for each in stack.node.taints}
    return NodeMarks(dict(stack.node.labels), taints)
