"""Holds what every step of an apply needs: the runner, the planner, the playbooks, and what nodes may be handed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from provision.apply.supply.supply import Supply

if TYPE_CHECKING:
    import threading

    from provision.apply.model import PlaybookRunner
    from provision.apply.playbooks import Playbooks
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan


class Planner(Protocol):
    """Makes one node's plan: `provision.apply.planner_process.BoundedPlanner`, or a function in tests."""

    def __call__(self, node: str, facts: NodeFacts, cancel: threading.Event, /) -> NodePlan:
        """Return the plan of a node; CanceledError soon after ``cancel`` is set, other exceptions are the node's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyContext(Supply):
    """One apply's runner, planner and playbooks, with its declarations and what they may be supplied from."""

    runner: PlaybookRunner
    plan: Planner
    playbooks: Playbooks
