"""Sees which nodes need the same kernel modules, and which of them could provide those for the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from provision.apply.gate import find_obstacle
from provision.apply.model import Assessment, Failure
from provision.declaration.spec.model import Build
from provision.declaration.spec.text.excerpt import few
from provision.planning.supply.builds.assignment import Situation, choose_providers
from provision.planning.supply.builds.errors import BuildsError
from provision.planning.supply.builds.needs import builds_of, has_built
from provision.planning.supply.builds.proof import Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from provision.apply.supply.supply import Supply
    from provision.planning.supply.builds.model import BuiltModule, ModuleBuild

BUILDS, HAS_BUILT, KEPT = "builds", "has built", "built earlier"
DRAWN, DIFFERING = "drawn", "differing"


@dataclass(frozen=True, slots=True)
class Handing:
    """A build that nodes are handed, and who provides it; ``how`` is what those nodes do for it.

    With `DRAWN`, ``nodes`` are those of which ``builds`` are drawn. With `DIFFERING` the two have built something else,
    and ``receivers`` build their own. ``builds`` is how many nodes build at most, ``compared_with`` names the other
    providers.
    """

    build: ModuleBuild
    nodes: tuple[str, ...]
    receivers: tuple[str, ...]
    how: str
    builds: int = 1
    compared_with: tuple[str, ...] = ()

    def __str__(self) -> str:
        compared = f", compared with that of {few(self.compared_with)}" if self.compared_with else ""
        return f"{self.how} {self.build}{compared}, for {few(self.receivers) or 'later nodes'}"


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

    def situation(self) -> Situation:
        """Return what the next round is decided from."""
        usable = dict(self._usable())
        needs = {
            node: self.supply.builds(answer)
            for node, answer in usable.items()
            if node in self.staging and is_to_stage(answer)
        }
        able = {
            build: self.supply.draw([node for node, answer in usable.items() if self._can_provide(node, answer, build)])
            for build in {build for needed in needs.values() for build in needed}
        }
        return Situation(
            needs=needs,
            able=able,
            tried=self.tried,
            standings={build: self._standing(build) for build in able},
            machines={node: self.supply.machine(node, answer.facts) for node, answer in usable.items()},
            expects_more=self.expects_more,
        )

    def handings(self, chosen: Mapping[str, Sequence[ModuleBuild]], situation: Situation) -> Iterator[Handing]:
        """Yield what each node does for the others in a round."""
        for node, builds in chosen.items():
            answer = self.answers[node]
            how = BUILDS if isinstance(answer, Assessment) and is_to_stage(answer) else HAS_BUILT
            for build in builds:
                providers = [one for one, provided in chosen.items() if build in provided]
                known = (*(one.node for one in situation.standing(build).given), *providers)
                others = tuple(one for one in known if one != node)
                yield Handing(build, (node,), situation.receivers(build, *providers), how, int(how == BUILDS), others)

    def take_kept(self, situation: Situation) -> Iterator[Handing]:
        """Have handed over what may be of what is needed now; yield what was not handed over before."""
        for build in situation.builds():
            if build not in self.supply.built and (module := self._find(build)) is not None:
                self.supply.built[build] = module
                yield Handing(build, module.nodes, situation.receivers(build), KEPT, 0)

    def _find(self, build: ModuleBuild) -> BuiltModule | None:
        try:
            return None if self.supply.shelf is None else self.supply.shelf.find(build)
        except BuildsError:  # it is told when something is to be kept there
            return None

    def _standing(self, build: ModuleBuild) -> Standing:
        try:
            return Standing(build) if self.supply.shelf is None else self.supply.shelf.standing(build)
        except BuildsError:  # as above
            return Standing(build)

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
    """Return who would provide which modules for whom, as far as the plans show it; changes and draws nothing."""
    kinds = Kinds(replace(supply, draw=tuple, built={}), dict(answers), frozenset(staging))
    situation = kinds.situation()
    found = list(kinds.take_kept(situation))
    for build in situation.builds():
        providers, standing = situation.providers(build), situation.standing(build)
        receivers = situation.receivers(build)
        if (difference := standing.difference) is not None:
            found.append(Handing(build, difference.nodes, receivers, DIFFERING, len(receivers)))
        elif providers and not build.builder:
            known = tuple(answer.node for answer in standing.given)
            able = tuple(node for node in situation.able[build] if node not in known)
            found.append(Handing(build, able, receivers, DRAWN, len(providers), known))
    chosen = {node: [one for one in builds if one.builder] for node, builds in choose_providers(situation).items()}
    return (*found, *kinds.handings(chosen, situation))
