"""Judges what nodes gave as their builds: whether it may be handed on, or who else has to build it. Pure.

One node's word is not enough, since its root would choose what runs in the kernels of all others. Two nodes have to
give the same, on two machines, or the declared builder gives it. Where two differ nothing is handed on, and nobody is
asked any more: who could have the draw repeated until it suits them would win it in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.planning.supply.builds.model import GivenBuild, ModuleBuild

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """Two nodes that built something else, and the names of the files in which it differs."""

    nodes: tuple[str, str]
    files: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.files[:_SHOWN]) + (", …" if len(self.files) > _SHOWN else "")
        return f"{self.nodes[0]} and {self.nodes[1]} have built different modules ({names})"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a build stands, by the answers that count."""

    build: ModuleBuild
    answers: tuple[GivenBuild, ...] = ()

    @property
    def given(self) -> tuple[GivenBuild, ...]:
        """Answers of different machines; the first of those that one machine gave under several names."""
        found: list[GivenBuild] = []
        for answer in self.answers:
            if not any(is_same_machine(answer.machine, other.machine) for other in found):
                found.append(answer)
        return tuple(found)

    @property
    def difference(self) -> Difference | None:
        """What keeps it from being handed on although enough nodes have built it."""
        for other in self.answers[1:]:
            first = self.answers[0]
            if other.content != first.content:
                names = sorted(
                    name
                    for name in {*first.content, *other.content}
                    if first.content.get(name) != other.content.get(name)
                )
                return Difference((first.node, other.node), tuple(names))
        return None

    @property
    def proof(self) -> tuple[GivenBuild, ...]:
        """The answers by which it may be handed on; empty where it may not."""
        is_enough = len(self.given) >= self.build.answers and self.difference is None
        return self.given[: self.build.answers] if is_enough else ()


def is_same_machine(one: Collection[str], other: Collection[str]) -> bool:
    """Tell whether two names are of one machine: it has the same id, or is reached at the same place."""
    return not set(one).isdisjoint(other)
