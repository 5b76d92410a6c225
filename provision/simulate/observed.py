"""Makes a scenario of a fleet as it is seen now, and of how long its phases have taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.rollout.cluster import NodeProblem
from provision.rollout.decision.policy import strictest
from provision.rollout.model import Phase
from provision.simulate.scenario import NodeModel, PodModel, Scenario, Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from provision.rollout.model import NodeView, Record
    from provision.spec.model import StackSpec

UNKNOWN: Final = "another driver"


def scenario_of(
    views: Mapping[str, NodeView | NodeProblem],
    stacks: Mapping[str, StackSpec],
    groups: Mapping[str, Sequence[str]],
    start: datetime,
) -> Scenario:
    """Return the fleet with its declared policy. Budgets are not known: an eviction is never refused.

    A node whose record says that it was brought to the declared driver has it; of the others that is not known, and
    they are changed.
    """
    shared = next(iter(stacks.values())).rollout
    nodes = [
        _node(view, stacks[name].driver.version or stacks[name].driver.branch or "", groups.get(name, ()))
        for name, view in views.items()
        if not isinstance(view, NodeProblem)
    ]
    targets = sorted({stack.driver.version or stack.driver.branch or "" for stack in stacks.values()})
    return Scenario(
        nodes=tuple(nodes),
        target=targets[-1],
        start=start,
        rollout=shared,
        policy=strictest([stack.rollout for stack in stacks.values()], len(nodes)),
        durations=measured(
            view.record for view in views.values() if not isinstance(view, NodeProblem) and view.record is not None
        ),
    )


def _node(view: NodeView, target: str, groups: Sequence[str]) -> NodeModel:
    record = view.record
    has_it = record is not None and record.phase is Phase.DONE and record.target == target
    return NodeModel(
        name=view.name,
        driver=target if has_it else UNKNOWN,
        groups=tuple(groups),
        labels=view.labels,
        pods=tuple(
            PodModel(name=str(pod), controller=pod.controller, is_daemon=pod.is_mirror_or_daemon)
            for pod in view.gpu_pods
        ),
        is_cordoned=view.is_cordoned,
        is_ready=view.is_ready,
    )


def measured(records: Iterable[Record]) -> dict[Phase, Spread]:
    """Return how long phases took on nodes, as their records tell."""
    found: dict[Phase, list[float]] = {}
    for record in records:
        for phase, seconds in record.took.items():
            found.setdefault(phase, []).append(seconds)
    return {phase: Spread(measured=tuple(each)) for phase, each in found.items()}
