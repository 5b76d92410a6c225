"""Makes a scenario of a fleet as it is seen now, and of how long its phases have taken."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import GpuInterface
from provision.rollout.decision.policy import strictest
from provision.rollout.decision.undoing import is_declared
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

    A node has the declared driver if its record says that it was brought to that, or its daemon reports it; of the
    others that is not known, and they are changed. Where all have it, the change of the interface is what is played, if
    there is one: a node has the one that it changed over to last, else the device plugin.
    """
    shared = next(iter(stacks.values())).rollout
    targets = sorted({stack.driver.version or stack.driver.branch or "" for stack in stacks.values()})
    nodes = [
        _node(view, stacks[name], targets[-1], groups.get(name, ()))
        for name, view in views.items()
        if not isinstance(view, NodeProblem)
    ]
    interface = _interface(views, stacks)
    target = targets[-1]
    if interface is not None and all(node.driver == target for node in nodes):
        has = {name: _given_by(view).value for name, view in views.items() if not isinstance(view, NodeProblem)}
        nodes, target = [replace(node, driver=has[node.name]) for node in nodes], interface.value
    else:
        interface = None
    return Scenario(
        nodes=tuple(nodes),
        target=target,
        start=start,
        interface=interface,
        rollout=shared,
        policy=strictest([stack.rollout for stack in stacks.values()], len(nodes)),
        durations=measured(
            view.record for view in views.values() if not isinstance(view, NodeProblem) and view.record is not None
        ),
    )


def _node(view: NodeView, stack: StackSpec, target: str, groups: Sequence[str]) -> NodeModel:
    """Return a node as it is before it begins; the cordon of an upgrade that is not over is ours, not another's."""
    record = view.record
    is_out = record is not None and not record.phase.is_in_service
    return NodeModel(
        name=view.name,
        driver=target if is_declared(stack.driver, view.driver) or _has(record, stack) else UNKNOWN,
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


def _has(record: Record | None, stack: StackSpec) -> bool:
    """Tell whether a node was brought to what is declared: a version, or any of a branch."""
    return record is not None and record.phase is Phase.DONE and is_declared(stack.driver, record.target)


def _interface(views: Mapping[str, NodeView | NodeProblem], stacks: Mapping[str, StackSpec]) -> GpuInterface | None:
    """Return the interface that all nodes are to have and some have not, None where there is no such."""
    declared = {stack.plugin.interface for stack in stacks.values()}
    has = {_given_by(view) for view in views.values() if not isinstance(view, NodeProblem)}
    return declared.pop() if len(declared) == 1 and not has <= declared else None


def _given_by(view: NodeView) -> GpuInterface:
    """Return the interface that a node has, as far as its record says."""
    record = view.record
    if record is None or record.interface is None:
        return GpuInterface.DEVICE_PLUGIN
    return record.interface if record.phase is Phase.DONE else record.former_interface or record.interface.other


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
