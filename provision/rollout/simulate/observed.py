"""Makes a scenario of a fleet as it is seen now, and of how long its phases have taken."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.policy import strictest
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import Phase
from provision.rollout.simulate.scenario import NodeModel, PodModel, Scenario, Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from provision.declaration.spec.model import StackSpec
    from provision.rollout.model import NodeView, Record

UNKNOWN: Final = "another driver"
_FAR: Final = 10  # times the median


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
    targets = sorted({stack.driver.version or stack.driver.branch or "" for stack in stacks.values()})
    nodes = [
        _node(view, stacks[name], targets[-1], groups.get(name, ()))
        for name, view in views.items()
        if not isinstance(view, NodeProblem)
    ]
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


def _node(view: NodeView, stack: StackSpec, target: str, groups: Sequence[str]) -> NodeModel:
    """Return a node as it is before it begins; the cordon of an upgrade that is not over is ours, not somebody's."""
    record = view.record
    is_out = record is not None and not record.phase.is_in_service
    return NodeModel(
        name=view.name,
        driver=target if record is not None and _has(record, stack) else UNKNOWN,
        groups=tuple(groups),
        labels=view.labels,
        pods=tuple(
            PodModel(name=str(pod), controller=pod.controller, is_daemon=pod.is_mirror_or_daemon or bool(pod.stays))
            for pod in view.gpu_pods
        ),
        is_cordoned=record.was_cordoned if record is not None and is_out else view.is_cordoned,
        is_ready=view.is_ready,
        is_skipped=view.is_skipped,
    )


def _has(record: Record, stack: StackSpec) -> bool:
    """Tell whether a node was brought to what is declared: a version, or any of a branch."""
    if record.phase is not Phase.DONE:
        return False
    if stack.driver.version:
        return record.target == stack.driver.version
    return bool(stack.driver.branch) and record.target.startswith(f"{stack.driver.branch}.")


def measured(records: Iterable[Record]) -> dict[Phase, Spread]:
    """Return how long phases took on nodes, as their records tell.

    A node writes its own record: what is far from what the others tell is left out.
    """
    found: dict[Phase, list[float]] = {}
    for record in records:
        for phase, seconds in record.took.items():
            found.setdefault(phase, []).append(seconds)
    return {
        phase: Spread(measured=tuple(seconds for seconds in each if seconds <= median(each) * _FAR))
        for phase, each in found.items()
    }
