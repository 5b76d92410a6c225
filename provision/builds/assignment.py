"""Decides which node builds what for whom, a round at a time. Pure.

The first node of a kind builds, in the order that is given, which no node can change by what it says of itself. When it
fails the next one takes over; after ``MAX_BUILDERS`` of them every node builds its own, since what keeps three equal
nodes from building keeps the others from it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.builds.model import ModuleBuild

MAX_BUILDERS: Final = 3


@dataclass(frozen=True)
class Situation:
    """What is known when a round begins.

    ``needs`` is what each node that is to be staged needs, in the nodes' order; ``able`` who has a build or could make
    it, in that order; ``tried`` who has failed at it; ``there`` what need not be built any more.
    ``expects_more``: nodes that are not here yet may need the same.
    """

    needs: Mapping[str, Sequence[ModuleBuild]]
    able: Mapping[ModuleBuild, Sequence[str]]
    tried: Mapping[ModuleBuild, frozenset[str]] = field(default_factory=dict)
    there: frozenset[ModuleBuild] = frozenset()
    expects_more: bool = False

    def receivers(self, build: ModuleBuild, provider: str = "") -> tuple[str, ...]:
        """Return the nodes that need a build, other than the one that provides it."""
        return tuple(node for node, needed in self.needs.items() if build in needed and node != provider)

    def provider(self, build: ModuleBuild) -> str | None:
        """Return the node whose turn it is, None where nobody is left, or has anybody to build for."""
        tried = self.tried.get(build, frozenset())
        if build in self.there or len(tried) >= MAX_BUILDERS:
            return None
        left = next((node for node in self.able.get(build, ()) if node not in tried), None)
        is_wanted = left is not None and (self.expects_more or self.receivers(build, left))
        return left if is_wanted else None


def choose_providers(situation: Situation) -> dict[str, tuple[ModuleBuild, ...]]:
    """Return what each node of the next round provides; empty when there is nothing left to provide.

    A node builds all that it needs itself, so one that needs what another is about to build waits for the round after.
    """
    assigned: dict[ModuleBuild, str] = {}
    for build in dict.fromkeys(build for needed in situation.needs.values() for build in needed):
        provider = situation.provider(build)
        if provider is not None and all(
            assigned.get(other, provider) == provider for other in situation.needs.get(provider, ())
        ):
            assigned[build] = provider
    return {
        node: tuple(build for build, provider in assigned.items() if provider == node)
        for node in dict.fromkeys(assigned.values())
    }


def left_alone(situation: Situation) -> dict[ModuleBuild, tuple[str, ...]]:
    """Return builds that nobody provides, with the nodes that have to build their own."""
    builds = dict.fromkeys(build for needed in situation.needs.values() for build in needed)
    return {
        build: situation.receivers(build)
        for build in builds
        if build not in situation.there and situation.provider(build) is None
    }
