"""Holds what every step of an apply needs: the runner, the planner and the playbooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from provision.bundle.offer import with_offer
from provision.planner.bundled import compare_with_bundle, find_handover

if TYPE_CHECKING:
    import threading

    from provision.apply.declarations import Declarations
    from provision.apply.model import Assessment, PlaybookRunner
    from provision.apply.playbooks import Playbooks
    from provision.bundle.handover import Handover
    from provision.bundle.read import Bundle
    from provision.fleet.facts import NodeFacts
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
        return None if self.bundle is None else find_handover(assessment.plan, assessment.facts, self.bundle)

    def known(self, facts: NodeFacts) -> NodeFacts:
        """Return the facts that a node is planned from: with a bundle, that is the only source of packages."""
        return facts if self.bundle is None else with_offer(facts, self.bundle.listing)

    def judged(self, plan: NodePlan, facts: NodeFacts) -> NodePlan:
        """Return a plan with what the bundle lacks for it, if there is one."""
        return plan if self.bundle is None else compare_with_bundle(plan, facts, self.bundle)
