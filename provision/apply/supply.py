"""Holds what nodes may be handed to stage their drivers from: files of a bundle, modules that others have built."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from provision.apply.model import Assessment
from provision.builds.needs import needed_builds
from provision.bundle.errors import BundleError
from provision.bundle.handover import HandedFile, Handover
from provision.bundle.offer import with_offer
from provision.planner.bundled import compare_with_bundle, find_handover

if TYPE_CHECKING:
    from provision.apply.declarations import Declarations
    from provision.builds.model import BuiltModule, ModuleBuild
    from provision.builds.shelf import Shelf
    from provision.bundle.read import Bundle
    from provision.fleet.facts import NodeFacts
    from provision.node_plan import NodePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """A bundle, and what nodes have built for others, with the declarations that say who may have it.

    ``shelf`` keeps modules that one node has built for others; without one, every node builds its own. ``built`` are
    those that are handed over now.
    """

    declarations: Declarations
    bundle: Bundle | None = None
    shelf: Shelf | None = None
    built: dict[ModuleBuild, BuiltModule] = field(default_factory=dict)

    def builds(self, assessment: Assessment) -> tuple[ModuleBuild, ...]:
        """Return the modules that a node needs for its change and may be handed; none that a bundle has for it."""
        driver, stack = assessment.plan.roles.driver, self.declarations.stacks.get(assessment.plan.node)
        if driver is None or stack is None or self.shelf is None:
            return ()
        needed = needed_builds(assessment.facts, driver.driver_change, stack.driver)
        carried = {file.place for file in self._carried(assessment)} if needed else set()
        return tuple(build for build in needed if build.place not in carried)

    def _carried(self, assessment: Assessment) -> tuple[HandedFile, ...]:
        try:
            handover = self._from_bundle(assessment)
        except BundleError:  # it is the node's failure when it is staged
            return ()
        return () if handover is None else handover.files

    def handover(self, assessment: Assessment) -> Handover | None:
        """Return what a node is handed to stage its driver from, None where that is nothing; raises BundleError."""
        driver = assessment.plan.roles.driver
        if driver is None or not driver.driver_stage:
            return None
        carried = self._from_bundle(assessment)
        modules = tuple(
            HandedFile(module.path, build.place, module.sha256)
            for build in self.builds(assessment)
            if (module := self.built.get(build)) is not None
        )
        if carried is None:
            return Handover(modules, is_complete=False) if modules else None
        return replace(carried, files=(*carried.files, *modules))

    def _from_bundle(self, assessment: Assessment) -> Handover | None:
        """Return what the bundle has for a node's change, None without a bundle or a change; raises BundleError."""
        return None if self.bundle is None else find_handover(assessment.plan, assessment.facts, self.bundle)

    def known(self, facts: NodeFacts) -> NodeFacts:
        """Return the facts that a node is planned from: with a bundle, that is the only source of packages."""
        return facts if self.bundle is None else with_offer(facts, self.bundle.listing)

    def judged(self, plan: NodePlan, facts: NodeFacts) -> NodePlan:
        """Return a plan with what the bundle lacks for it, if there is one."""
        if self.bundle is None:
            return plan
        builds = self.builds(Assessment(facts, plan))
        return compare_with_bundle(
            plan, facts, self.bundle, lambda kernel: any(one.kernel == kernel and self._has(one) for one in builds)
        )

    def _has(self, build: ModuleBuild) -> bool:
        """Tell whether a module is there that some node has built; raises `BuildsError`."""
        return build in self.built or (self.shelf is not None and self.shelf.find(build) is not None)
