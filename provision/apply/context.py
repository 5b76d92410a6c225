"""Holds what every step of an apply needs: the runner, the planner and the playbooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from provision.bundle.handover import choose_files

if TYPE_CHECKING:
    import threading

    from provision.apply.declarations import Declarations
    from provision.apply.model import Assessment, PlaybookRunner
    from provision.apply.playbooks import Playbooks
    from provision.bundle.handover import Handover
    from provision.bundle.read import Bundle
    from provision.fleet.facts import NodeFacts, OperatingSystem
    from provision.node_plan import NodePlan


class Planner(Protocol):
    """Makes one node's plan: `provision.apply.planning.BoundedPlanner`, or a function in tests."""

    def __call__(self, node: str, facts: NodeFacts, cancel: threading.Event, /) -> NodePlan:
        """Return the plan of a node; CanceledError soon after ``cancel`` is set, other exceptions are the node's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyContext:
    """One apply's runner, planner, playbooks and declarations."""

    runner: PlaybookRunner
    plan: Planner
    playbooks: Playbooks
    declarations: Declarations
    bundle: Bundle | None = None

    def handover(self, assessment: Assessment) -> Handover | None:
        """Return what a node is handed to stage its driver from, None without a bundle; raises BundleError."""
        driver = assessment.plan.roles.driver
        if self.bundle is None or driver is None or driver.driver_change is None or not driver.driver_stage:
            return None
        names = distribution_names(assessment.facts.node.os)
        known = {each.distribution for each in self.bundle.listing.drivers}
        name = next((each for each in names if each in known), names[0])
        return choose_files(self.bundle, name, driver.driver_change)


def distribution_names(system: OperatingSystem) -> tuple[str, ...]:
    """Return how a bundle may call the distribution of a node: ``debian-13``, ``rocky-9.5`` or ``rocky-9``."""
    exact = f"{system.id}-{system.version_id}"
    return tuple(dict.fromkeys((exact, exact.partition(".")[0])))
