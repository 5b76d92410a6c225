"""Renders what a rollout would do: which nodes, in which order, and which pods have to leave them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from rich.table import Table

from provision.declaration.spec.model import GpuInterface
from provision.declaration.spec.text.excerpt import few
from provision.report.console import Text
from provision.report.terminal import CELL_WIDTH, age, count, names
from provision.rollout.decision.drain import evictable
from provision.rollout.model import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from provision.rollout.decision.policy import WavePolicy
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.standing import Forecast
    from provision.rollout.model import GpuPod


def render_rollout(prepared: Prepared, cluster: str, kubernetes: str = "") -> Iterator[RenderableType]:
    """Yield which nodes are taken out of service, in their order, and the pods that have to leave each.

    ``kubernetes`` is the part of the cluster that is one of Kubernetes.
    """
    if prepared.rollout:
        yield ""
        yield from _render_order(prepared, cluster)
    if prepared.runtime_classes:
        yield ""
        yield Text(f"RuntimeClass {', '.join(prepared.runtime_classes)} will be created on {kubernetes or cluster}")
    yield from _render_marks(prepared)
    yield from _render_tenancy(prepared, kubernetes or cluster)


def _render_tenancy(prepared: Prepared, kubernetes: str) -> Iterator[RenderableType]:
    """Yield what changes about quotas, priorities and queues, and what stands in the way of it."""
    told = prepared.tenancy
    if told.changes:
        yield ""
        yield Text.assemble(("tenancy", "bold"), f" ({kubernetes}):")
        yield from (Text(f" {change}") for change in told.changes)
    if told.problems:
        yield ""
        yield from (Text(problem, "yellow") for problem in told.problems)


def _render_marks(prepared: Prepared) -> Iterator[RenderableType]:
    """Yield what changes about labels and taints of Nodes, once for equal ones, and what is left to somebody else."""
    for title, told, style in (
        ("will be given", {name: each.changes for name, each in prepared.marks.items()}, ""),
        ("keep what somebody else has set", {name: each.conflicts for name, each in prepared.marks.items()}, "yellow"),
    ):
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, words in told.items():
            if words:
                alike.setdefault(words, []).append(name)
        for words, nodes in alike.items():
            yield ""
            yield Text(f"Nodes {few(nodes)} {title}: {', '.join(words)}", style)


def _render_order(prepared: Prepared, cluster: str) -> Iterator[RenderableType]:
    policy, total = prepared.policy, len(prepared.states)
    soak = f", {count(int(policy.soak.total_seconds() // 60), 'minute')} apart" if policy.soak else ""
    most = min(policy.max_unavailable, total)
    at_once = f"{min(policy.max_parallel, total)} at a time{soak}, at most {most} of {count(total, 'node')} out"
    failures = f", stops after {count(policy.max_failures + 1, 'failure')}" if policy.max_failures else ""
    yield Text.assemble(("rollout", "bold"), f" ({cluster}): {at_once}{failures}")
    if prepared.closed:
        yield Text(f" no node begins now: {prepared.closed}", "yellow")
    for gate in prepared.gates:
        yield Text(f" gate {gate.name} is open") if gate.is_open else Text(f" {gate.as_reason}", "yellow")
    states = {state.name: state for state in prepared.states}
    for index, wave in enumerate(policy.waves):
        yield Text(f" {_describe_wave(wave, [states[name] for name in prepared.rollout], index)}")
    if prepared.forecast is not None:
        yield from _render_forecast(prepared.forecast)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", min_width=3)
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column(no_wrap=True, max_width=CELL_WIDTH)
    grid.add_column(overflow="fold")
    for place, name in enumerate(prepared.rollout, 1):
        grid.add_row(f"{place}.", name, _versions(states[name]), _about(states[name]))
    yield grid


def _render_forecast(forecast: Forecast) -> Iterator[Text]:
    """Yield how long it takes, and each wave where there are several."""
    if forecast.seconds is None:
        yield Text(" expected to take: not measured yet")
        return
    how = "played with" if forecast.is_played else "estimated from"
    basis = f"{how} what steps took on {count(forecast.measured, 'node')}"
    less = f"; not counted: {', '.join(forecast.uncounted)}" if forecast.uncounted else ""
    yield Text(f" expected to take {age(forecast.seconds)} ({basis}{less})")
    if len(forecast.waves) > 1:
        for wave in forecast.waves:
            yield Text(f"   {wave.title}: {age(wave.ends_s - wave.begins_s)}, from +{age(wave.begins_s)} on")


def _forecast_document(forecast: Forecast) -> dict[str, object]:
    return {
        "seconds": None if forecast.seconds is None else round(forecast.seconds),
        "by": None if forecast.seconds is None else "simulation" if forecast.is_played else "estimate",
        "measuredNodes": forecast.measured,
        "waves": [
            {
                "title": wave.title,
                "nodes": wave.nodes,
                "beginsAfterSeconds": round(wave.begins_s),
                "endsAfterSeconds": round(wave.ends_s),
                "soakSeconds": round(wave.soak_s),
            }
            for wave in forecast.waves
        ],
        "notCounted": list(forecast.uncounted),
    }


def _describe_wave(wave: WavePolicy, nodes: Sequence[NodeState], index: int) -> str:
    members = [node.name for node in nodes if node.wave == index]
    soak = f"; soaks {count(int(wave.soak.total_seconds() // 60), 'minute')}" if wave.soak else ""
    held = "; then holds the others" if wave.is_held else ""
    return f"{wave.title}: {names(members) if members else 'nothing to do'}{soak}{held}"


def rollout_document(prepared: Prepared, cluster: str) -> dict[str, object]:
    """Return the same as JSON."""
    states = {state.name: state for state in prepared.states}
    return {
        "cluster": cluster,
        "maxParallel": prepared.policy.max_parallel,
        "maxUnavailable": prepared.policy.max_unavailable,
        "soakSeconds": int(prepared.policy.soak.total_seconds()),
        "maxFailures": prepared.policy.max_failures,
        "closed": prepared.closed or None,
        "gates": [{"name": gate.name, "open": gate.is_open, "reason": gate.reason or None} for gate in prepared.gates],
        "waves": [
            {"title": wave.title, "soakSeconds": int(wave.soak.total_seconds()), "holds": wave.is_held}
            for wave in prepared.policy.waves
        ],
        "expected": None if prepared.forecast is None else _forecast_document(prepared.forecast),
        "nodes": [_describe(states[name]) for name in prepared.rollout],
        "runtimeClasses": list(prepared.runtime_classes),
        "nodeMarks": {
            name: {"changes": list(each.changes), "conflicts": list(each.conflicts)}
            for name, each in prepared.marks.items()
        },
        "tenancy": {"changes": list(prepared.tenancy.changes), "problems": list(prepared.tenancy.problems)},
    }


def _describe(state: NodeState) -> dict[str, object]:
    record = state.record
    return {
        "node": state.name,
        "kind": state.kind.value,
        "from": (state.origin or None) if state.interface is None else _former(state, state.interface).value,
        "to": (state.target or None) if state.interface is None else state.interface.value,
        "wave": None if state.wave is None else state.wave + 1,
        "zone": state.zone or None,
        "phase": None if record is None else record.phase.value,
        "cordoned": state.view.is_cordoned,
        "ready": state.view.is_ready,
        "keptOut": state.kept_out or None,
        "remarks": list(state.view.remarks),
        "pods": [] if state.kind.is_in_place else [_describe_pod(state, pod) for pod in evictable(state)],
        "withholds": [
            {"namespace": pod.namespace, "name": pod.name} for pod in state.view.gpu_pods if _withholds(state)
        ],
        "waitsFor": [{"namespace": pod.namespace, "name": pod.name} for pod in state.view.jobs],
    }


def _withholds(state: NodeState) -> bool:
    """Tell whether pods have GPUs by another interface than the node is to have."""
    return state.interface is not None and _former(state, state.interface) is not state.interface


def _describe_pod(state: NodeState, pod: GpuPod) -> dict[str, object]:
    """Return a pod that is evicted, and what is out of the ordinary about that."""
    blocked = {"blocked": state.blocked[pod.uid]} if pod.uid in state.blocked else {}
    return {"namespace": pod.namespace, "name": pod.name, **blocked} | (
        {"replacedFirst": True} if pod.is_replaced_first else {}
    )


def _versions(state: NodeState) -> str:
    if state.interface is not None:
        return " → ".join(dict.fromkeys((_former(state, state.interface).value, state.interface.value)))
    return " → ".join(dict.fromkeys(version for version in (state.origin, state.target) if version))


def _about(state: NodeState) -> Text:
    record = state.record
    text = Text()
    if record is not None and state.is_in_flight:
        text.append(f"continues from {record.phase}; ", "yellow")
    elif record is not None and state.has_failed_before:
        where = f" in {record.failed_in}" if record.failed_in else ""
        text.append(f"failed{where}, is retried; ", "yellow")
    elif state.view.is_cordoned:
        text.append("is cordoned, and stays so; ", "yellow")
    if not state.view.is_ready:
        text.append("is not ready; ", "yellow")
    if state.kept_out and not state.is_in_flight:
        text.append(f"does not begin: {state.kept_out}; ", "yellow")
    for remark in state.view.remarks:
        text.append(f"{remark}; ", "yellow")
    if state.interface is not None:
        return text.append(_withheld(state, state.interface))
    return text.append("; ".join(_pods(state)) or "nothing has to leave it")


def _withheld(state: NodeState, interface: GpuInterface) -> str:
    """Return that a node changes over in place, and which pods go on with GPUs that nobody else is given meanwhile."""
    pods = [str(pod) for pod in state.view.gpu_pods]
    what = f"gives GPUs by {interface.words}; no pod leaves it"
    before = _former(state, interface)
    if not pods or before is interface:  # it was about to leave it, and has not
        return what
    if GpuInterface.BOTH in {before, interface}:
        return (
            f"{what}; {names(pods)} keep theirs, of which those that are to be given otherwise are withheld meanwhile"
        )
    return f"{what}; withheld until they end are the GPUs of {names(pods)}, given by {before.words}"


def _former(state: NodeState, interface: GpuInterface) -> GpuInterface:
    return state.former_interface or interface.other


def _pods(state: NodeState) -> Iterator[str]:
    """Yield what becomes of the pods of a node, and what keeps its drain from its end."""
    view, pods = state.view, evictable(state)
    waited = {pod.uid: pod for pod in (*view.jobs, *view.gpu_pods) if pod.only_waited or pod in view.jobs}
    left = [pod for pod in view.gpu_pods if pod.stays]
    if waited:
        named = [f"{pod} ({pod.only_waited})" if pod.only_waited else str(pod) for pod in waited.values()]
        yield f"waits for {names(named)}"
    if view.work:
        yield f"waits for {names([str(job) for job in view.work])}"
    pods = tuple(pod for pod in pods if pod.uid not in waited)
    if pods:
        yield f"evicts {names([_pod(pod, state) for pod in pods])}"
    for pod in pods:
        if pod.uid in state.blocked:
            yield f"{pod}: {state.blocked[pod.uid]}"
    yield from _ended_by_taint(pods, state.drain.limit.total_seconds())
    restarted = [pod for pod in view.gpu_pods if pod.is_restarted]
    if restarted and state.kind is ChangeKind.DRIVER and state.origin != state.target:
        yield f"restarts {names([str(pod) for pod in restarted])} afterwards"
    if left:
        yield f"leaves {names([f'{pod} ({pod.stays})' for pod in left])}"


def _ended_by_taint(pods: Sequence[GpuPod], limit_s: float) -> Iterator[str]:
    """Yield which pods a taint on their GPUs ends, and which tolerate it for longer than anybody waits."""
    if tainted := [str(pod) for pod in pods if pod.is_by_claims]:
        yield f"where the cluster has taints of devices, one ends {names(tainted)}, whatever disruption budgets say"
    for pod in pods:
        if pod.tolerates_s == inf:
            yield f"{pod} tolerates the taint of an upgrade for ever, and is evicted within its disruption budgets"
        elif pod.is_by_claims and pod.tolerates_s >= limit_s:
            time = f"{age(pod.tolerates_s)}, and drainTimeout is {age(limit_s)}"
            yield f"{pod} tolerates the taint for {time}: unless it ends before, this node fails"


def _pod(pod: GpuPod, state: NodeState) -> str:
    if pod.is_replaced_first and pod.uid not in state.blocked:
        return f"{pod} (replaced first)"
    return str(pod) if pod.controller else f"{pod} (nothing restarts it)"
