"""Reads the file that describes a fleet to simulate, and makes a scenario of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.base.errors import os_reason
from provision.base.regular_file import read_beginning
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.load import failed
from provision.declaration.spec.text.document import MAX_BYTES, UNREADABLE, read_document
from provision.declaration.spec.validate import convert, examine
from provision.rollout.model import Phase
from provision.rollout.simulate.fleet_model import SimulatedFleet
from provision.rollout.simulate.scenario import BudgetModel, Faults, NodeModel, PodModel, Scenario, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from provision.declaration.spec.text.document import Document
    from provision.declaration.spec.text.findings import KeyPath
    from provision.rollout.simulate.fleet_model import Duration, Durations, FaultRates, FleetSpec, Nodes

_MINUTE_S = 60.0
_WHOLE = 100.0
_PHASES = (Phase.DRAIN, Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.ROLLBACK)


def load_scenario(path: Path, start: datetime) -> Scenario:
    """Return the scenario of a file; raises DeclarationError with everything that is wrong with it."""
    try:
        data = read_beginning(path, MAX_BYTES + 1)
    except OSError as error:
        reason = os_reason(error)
        raise DeclarationError(f"{path} cannot be read: {reason}", ()) from error
    return read_scenario(data, str(path), start)


def read_scenario(data: bytes, name: str, start: datetime) -> Scenario:
    """Return the scenario of a text; ``name`` is what messages call it."""
    document = read_document(data, name)
    findings = list(document.findings)
    if document.content is not UNREADABLE:
        findings += examine(document.content, SimulatedFleet, document)
    if not findings:
        spec = convert(document.content, SimulatedFleet).spec
        _judge(spec, document)
        findings = document.findings
    if findings:
        raise failed(findings)
    return _scenario(spec, start)


def _judge(spec: FleetSpec, document: Document) -> None:
    """Report what does not fit together."""
    known: set[str] = set()
    for index, nodes in enumerate(spec.nodes):
        path = ("spec", "nodes", index)
        if twice := sorted(known & set(_names(nodes)))[:1]:
            hint = "each node has a name of its own"
            document.report(document.key_place((*path, "name")), f"{twice[0]} is described twice", hint, path)
        known.update(_names(nodes))
        for kind in nodes.pods:
            if kind not in spec.pods:
                where = (*path, "pods", kind)
                document.report(
                    document.key_place(where), f"there are no pods {kind}", "describe them in `pods`", where
                )
    for kind, pods in spec.pods.items():
        if pods.budget is not None and pods.budget not in spec.budgets:
            key: KeyPath = ("spec", "pods", kind, "budget")
            message = f"there is no budget {pods.budget}"
            document.report(document.value_place(key), message, "describe it in `budgets`", key)
    for phase, duration in _durations(spec.durations):
        if duration.p95 and duration.p95 < duration.median:
            key = ("spec", "durations", phase.value, "p95")
            document.report(document.value_place(key), "is less than the median", "half take longer than that", key)


def _durations(durations: Durations) -> Iterator[tuple[Phase, Duration]]:
    for phase in _PHASES:
        duration: Duration | None = getattr(durations, phase.value)
        if duration is not None:
            yield phase, duration


def _names(nodes: Nodes) -> tuple[str, ...]:
    if nodes.count is None:
        return (nodes.name,)
    width = len(str(nodes.count))
    return tuple(f"{nodes.name}{number:0{width}}" for number in range(1, nodes.count + 1))


def _scenario(spec: FleetSpec, start: datetime) -> Scenario:
    return Scenario(
        nodes=tuple(model for nodes in spec.nodes for model in _models(nodes, spec)),
        target=spec.to if spec.interface is None else spec.interface.value,
        start=start,
        interface=spec.interface,
        rollout=spec.rollout,
        budgets=tuple(
            BudgetModel(name, budget.allowed, float(budget.restart_seconds)) for name, budget in spec.budgets.items()
        ),
        durations=spreads_of(spec.durations),
        faults=faults_of(spec.faults),
    )


def _models(nodes: Nodes, spec: FleetSpec) -> Iterator[NodeModel]:
    pods = tuple(
        PodModel(
            name=f"{kind}-{number}" if count > 1 else kind,
            grace_s=None if spec.pods[kind].grace_seconds is None else float(spec.pods[kind].grace_seconds or 0),
            budget=spec.pods[kind].budget or "",
            is_daemon=spec.pods[kind].daemon_set,
        )
        for kind, count in nodes.pods.items()
        for number in range(1, count + 1)
    )
    for name in _names(nodes):
        yield NodeModel(
            name=name,
            driver=(nodes.driver or spec.from_) if spec.interface is None else spec.interface.other.value,
            groups=nodes.groups,
            labels=nodes.labels,
            pods=pods,
            is_cordoned=nodes.cordoned,
            is_ready=nodes.ready,
            is_skipped=nodes.skipped,
        )


def spreads_of(durations: Durations) -> Mapping[Phase, Spread]:
    """Return how long phases take, as far as it is described."""
    return {
        phase: Spread(float(one.median), float(one.p95), tuple(map(float, one.measured)))
        for phase, one in _durations(durations)
    }


def faults_of(rates: FaultRates) -> Faults:
    """Return what goes wrong."""
    return Faults(
        swap=share_of(rates.swap),
        verify=share_of(rates.verify),
        lost=share_of(rates.nodes_lost),
        pods=share_of(rates.stuck_pods),
        ill_per_day=share_of(rates.hardware_per_day),
        away_every_s=rates.api_away.every_minutes * _MINUTE_S,
        away_for_s=rates.api_away.minutes * _MINUTE_S,
    )


def share_of(text: str) -> float:
    """Return "2.5%" as 0.025."""
    return float(text.removesuffix("%")) / _WHOLE
