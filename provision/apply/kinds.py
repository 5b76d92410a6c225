"""Sees which nodes need the same kernel modules, and which of them could provide those for the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.apply.gate import find_obstacle
from provision.apply.model import Assessment, Failure
from provision.builds.assignment import Situation, choose_providers
from provision.builds.errors import BuildsError
from provision.builds.needs import builds_of, has_built
from provision.spec.excerpt import few
from provision.spec.model import Build

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from provision.apply.supply import Supply
    from provision.builds.model import BuiltModule, ModuleBuild

BUILDS, HAS_BUILT, KEPT = "builds", "has built", "built earlier"


@dataclass(frozen=True, slots=True)
class Handing:
    """A build that nodes are handed, and who provides it; ``how`` is what that node does for it."""

    build: ModuleBuild
    node: str
    receivers: tuple[str, ...]
    how: str

    def __str__(self) -> str:
        return f"{self.how} {self.build}, for {few(self.receivers) or 'later nodes'}"


@dataclass(slots=True)
class Kinds:
    """A fleet while modules are provided to its nodes; ``staging`` are the nodes that may be staged now.

    ``answers`` are replaced as nodes are staged, ``tried`` is who has failed at a build. ``expects_more``: nodes that
    have not been asked yet may need the same modules.
    """

    supply: Supply
    answers: dict[str, Assessment | Failure]
    staging: frozenset[str]
    tried: dict[ModuleBuild, frozenset[str]] = field(default_factory=dict)
    expects_more: bool = False

    def situation(self, there: Collection[ModuleBuild]) -> Situation:
        """Return what the next round is decided from; ``there`` is what need not be built any more."""
        usable = dict(self._usable())
        needs = {
            node: self.supply.builds(answer)
            for node, answer in usable.items()
            if node in self.staging and is_to_stage(answer)
        }
        able = {
            build: tuple(node for node, answer in usable.items() if self._can_provide(node, answer, build))
            for build in {build for needed in needs.values() for build in needed}
        }
        return Situation(
            needs=needs, able=able, tried=self.tried, there=frozenset(there), expects_more=self.expects_more
        )

    def handing(self, node: str, build: ModuleBuild, situation: Situation) -> Handing:
        """Return what a node does for the others in a round."""
        answer = self.answers[node]
        is_builder = isinstance(answer, Assessment) and is_to_stage(answer)
        return Handing(build, node, situation.receivers(build, node), BUILDS if is_builder else HAS_BUILT)

    def kept(self, situation: Situation) -> Iterator[tuple[BuiltModule, Handing]]:
        """Yield what an earlier run has kept of what is needed now."""
        for build in dict.fromkeys(build for needed in situation.needs.values() for build in needed):
            if (module := self._find(build)) is not None:
                yield module, Handing(build, module.node, situation.receivers(build), KEPT)

    def _find(self, build: ModuleBuild) -> BuiltModule | None:
        try:
            return None if self.supply.shelf is None else self.supply.shelf.find(build)
        except BuildsError:  # it is told when something is to be kept there
            return None

    def _usable(self) -> Iterator[tuple[str, Assessment]]:
        for node, answer in self.answers.items():
            if isinstance(answer, Assessment) and find_obstacle(answer.plan) is None:
                yield node, answer

    def _can_provide(self, node: str, answer: Assessment, build: ModuleBuild) -> bool:
        """Tell whether a node has a build or could make it, and may: the declared builder alone where there is one."""
        driver, stack = answer.plan.roles.driver, self.supply.declarations.stacks.get(node)
        if build.builder:
            may, change = node == build.builder, None if driver is None else driver.driver_change
            makes = any(_makes_same(one, build) for one in builds_of(answer.facts, change))
        else:
            may = stack is not None and stack.driver.build is Build.ONCE and stack.driver.builder is None
            makes = build in self.supply.builds(answer)
        makes = makes and (node in self.staging or not is_to_stage(answer))
        return may and (makes or has_built(answer.facts, build))


def sharing_nodes(
    supply: Supply, answers: Mapping[str, Assessment | Failure], nodes: Collection[str]
) -> tuple[str, ...]:
    """Return the nodes whose modules may come from others, or that do not know yet which modules they need."""
    return tuple(
        node
        for node in nodes
        if isinstance(answer := answers[node], Assessment)
        and ((is_to_stage(answer) and supply.builds(answer)) or learns_sources(supply, answer))
    )


def learns_sources(supply: Supply, answer: Assessment) -> bool:
    """Tell whether a node has to be given its package sources before it can be known which modules it needs."""
    driver, stack = answer.plan.roles.driver, supply.declarations.stacks.get(answer.plan.node)
    may_share = supply.shelf is not None and stack is not None and stack.driver.build is Build.ONCE
    return may_share and driver is not None and driver.driver_change is None and bool(driver.driver_sources)


def is_to_stage(answer: Assessment) -> bool:
    """Tell whether a driver change is to be staged on a node."""
    driver = answer.plan.roles.driver
    return driver is not None and driver.driver_stage


def _makes_same(one: ModuleBuild, other: ModuleBuild) -> bool:
    """Tell whether two builds make the same, whoever may use it."""
    fields = ("distribution", "architecture", "kernel", "dkms", "version", "flavour", "certificate")
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def foresee_builds(
    supply: Supply, answers: Mapping[str, Assessment | Failure], staging: Collection[str]
) -> tuple[Handing, ...]:
    """Return who would provide which modules for whom, as far as the plans show it; changes nothing."""
    kinds = Kinds(supply, dict(answers), frozenset(staging))
    kept = tuple(handing for _, handing in kinds.kept(kinds.situation(())))
    situation = kinds.situation({one.build for one in kept})
    chosen = choose_providers(situation)
    return (*kept, *(kinds.handing(node, build, situation) for node, builds in chosen.items() for build in builds))
