"""Decides which nodes build what for whom, a round at a time. Pure.

Two nodes of a kind build, of three or more, so that what they hand on is nobody's word alone; the declared builder
where there is one. They are the first of ``able``, whose order is drawn and no node knows or can change. When one fails
the next takes over; after ``MAX_BUILDERS`` failures every node builds its own, since what keeps three equal nodes from
building keeps the others from it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.planning.supply.builds.proof import Standing, is_same_machine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.planning.supply.builds.model import ModuleBuild

MAX_BUILDERS: Final = 3


@dataclass(frozen=True)
class Situation:
    """What is known when a round begins.

    ``needs`` is what each node that is to be staged needs, in the nodes' order; ``able`` who has a build or could make
    it, in the order of the draw; ``tried`` who has failed at it; ``standings`` what was given before. ``machines`` tell
    nodes' machines apart. ``expects_more``: nodes that are not here yet may need the same.
    """

    needs: Mapping[str, Sequence[ModuleBuild]]
    able: Mapping[ModuleBuild, Sequence[str]]
    tried: Mapping[ModuleBuild, frozenset[str]] = field(default_factory=dict)
    standings: Mapping[ModuleBuild, Standing] = field(default_factory=dict)
    machines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    expects_more: bool = False

    def builds(self) -> tuple[ModuleBuild, ...]:
        """Return all that is needed, each once."""
        return tuple(dict.fromkeys(build for needed in self.needs.values() for build in needed))

    def receivers(self, build: ModuleBuild, *providers: str) -> tuple[str, ...]:
        """Return the nodes that need a build, other than those that provide it."""
        return tuple(node for node, needed in self.needs.items() if build in needed and node not in providers)

    def standing(self, build: ModuleBuild) -> Standing:
        """Return what was given of a build."""
        return self.standings.get(build, Standing(build))

    def providers(self, build: ModuleBuild) -> tuple[str, ...]:
        """Return the nodes whose turn it is, none where too few are left, or nobody is left to build for."""
        standing, tried = self.standing(build), self.tried.get(build, frozenset())
        if standing.proof or standing.difference or len(tried) >= MAX_BUILDERS:
            return ()
        missing = build.answers - len(standing.given)
        machines = [answer.machine for answer in standing.given]
        known = {answer.node for answer in standing.answers}
        chosen: list[str] = []
        for node in self.able.get(build, ()):
            machine = self.machines.get(node, ())
            if node not in tried | known and not any(is_same_machine(machine, other) for other in machines):
                chosen.append(node)
                machines.append(machine)
            if len(chosen) == missing:
                break
        has_receivers = bool(self.receivers(build, *chosen)) or (self.expects_more and bool(build.builder))
        return tuple(chosen) if len(chosen) == missing and has_receivers else ()


def choose_providers(situation: Situation) -> dict[str, tuple[ModuleBuild, ...]]:
    """Return what each node of the next round provides; empty when there is nothing left to provide.

    A node builds all that it needs itself, so one that needs what others are about to build waits for the round after.
    """
    assigned: dict[ModuleBuild, tuple[str, ...]] = {}
    for build in situation.builds():
        chosen = tuple(
            node
            for node in situation.providers(build)
            if all(node in assigned.get(other, (node,)) for other in situation.needs.get(node, ()))
        )
        if chosen:
            assigned[build] = chosen
    return {
        node: tuple(build for build, nodes in assigned.items() if node in nodes)
        for node in dict.fromkeys(node for nodes in assigned.values() for node in nodes)
    }


def left_alone(situation: Situation) -> dict[ModuleBuild, tuple[str, ...]]:
    """Return builds that nobody provides, with the nodes that have to build their own."""
    return {
        build: situation.receivers(build)
        for build in situation.builds()
        if not situation.standing(build).proof and not situation.providers(build)
    }
