"""Holds what every step of an apply needs: the runner, the planner and the playbooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from provision.builds.needs import needed_builds
from provision.bundle.handover import HandedFile, Handover, choose_files

if TYPE_CHECKING:
    import threading

    from provision.apply.declarations import Declarations
    from provision.apply.model import Assessment, PlaybookRunner
    from provision.apply.playbooks import Playbooks
    from provision.builds.model import BuiltModule, ModuleBuild
    from provision.builds.shelf import Shelf
    from provision.bundle.read import Bundle
    from provision.driver_change import DriverChange
    from provision.fleet.facts import NodeFacts, OperatingSystem
    from provision.node_plan import NodePlan


class Planner(Protocol):
    """Makes one node's plan: `provision.apply.planning.BoundedPlanner`, or a function in tests."""

    def __call__(self, node: str, facts: NodeFacts, cancel: threading.Event, /) -> NodePlan:
        """Return the plan of a node; CanceledError soon after ``cancel`` is set, other exceptions are the node's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyContext:
    """One apply's runner, planner, playbooks and declarations.

    ``shelf`` keeps modules that one node has built for others; without one, every node builds its own. ``built`` are
    those that are handed over now.
    """

    runner: PlaybookRunner
    plan: Planner
    playbooks: Playbooks
    declarations: Declarations
    bundle: Bundle | None = None
    shelf: Shelf | None = None
    built: dict[ModuleBuild, BuiltModule] = field(default_factory=dict)

    def builds(self, assessment: Assessment) -> tuple[ModuleBuild, ...]:
        """Return the modules that a node needs for its change and may be handed."""
        driver, stack = assessment.plan.roles.driver, self.declarations.stacks.get(assessment.plan.node)
        if driver is None or stack is None or self.shelf is None:
            return ()
        return needed_builds(assessment.facts, driver.driver_change, stack.driver)

    def handover(self, assessment: Assessment) -> Handover | None:
        """Return what a node is handed to stage its driver from, None where that is nothing; raises BundleError."""
        driver = assessment.plan.roles.driver
        if driver is None or driver.driver_change is None or not driver.driver_stage:
            return None
        carried = self._carried(self.bundle, assessment, driver.driver_change) if self.bundle is not None else None
        files = () if carried is None else carried.files
        places = {file.place for file in files}
        modules = tuple(
            HandedFile(module.path, build.place, module.sha256)
            for build in self.builds(assessment)
            if build.place not in places and (module := self.built.get(build)) is not None
        )
        return Handover((*files, *modules), is_complete=carried is not None) if carried or modules else None

    def _carried(self, bundle: Bundle, assessment: Assessment, change: DriverChange) -> Handover:
        names = distribution_names(assessment.facts.node.os)
        known = {each.distribution for each in bundle.listing.drivers}
        name = next((each for each in names if each in known), names[0])
        return choose_files(bundle, name, change)


def distribution_names(system: OperatingSystem) -> tuple[str, ...]:
    """Return how a bundle may call the distribution of a node: ``debian-13``, ``rocky-9.5`` or ``rocky-9``."""
    exact = f"{system.id}-{system.version_id}"
    return tuple(dict.fromkeys((exact, exact.partition(".")[0])))
