"""Renders how a fleet's upgrade stands as JSON; the contract is ``docs/contracts/status``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from provision.base.printable import printable_json
from provision.report.documents.machine import (
    DeclaredDocument,
    MachineDocument,
    UnknownDocument,
    declared_document,
    machine_document,
    unknown_documents,
)
from provision.report.runs.model import State
from provision.report.runs.remedies import BARE
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.report.runs.history import History
    from provision.report.runs.model import RunReport
    from provision.report.runs.remedies import Invocation
    from provision.rollout.interface.pause import Pause
    from provision.rollout.status.model import FleetStatus, NodeStatus, StackSeen, Tenant

SCHEMA: Final = "grapnel.dev/status/v1alpha1"

Time = Annotated[datetime, msgspec.Meta(tz=True)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class EngineDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who holds the lease. ``at_work`` is false when the last sign of life is too long ago."""

    holder: str
    since: Time | None
    heard: Time | None
    at_work: bool


class PauseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Who lets no further node begin, since when, and why."""

    by: str
    since: Time | None
    reason: str


class SituationDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a state means; ``todo`` is empty where there is nothing to do."""

    means: str
    follows: str
    todo: str
    needs_somebody: bool


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node. Null is what is not known, or does not apply. ``commands`` are those of what to do in its state."""

    name: str
    state: str
    since: Time | None
    began: Time | None
    phase: Phase | None
    failed_in: Phase | None
    origin: str | None
    target: str | None
    reason: str
    left_seconds: Seconds | None
    took: dict[Phase, Seconds]
    wave: str
    domain: str
    remarks: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    declared: DeclaredDocument | None = None
    machine: MachineDocument | None = None
    unknown: tuple[UnknownDocument, ...] = ()


class WaveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How far a wave is. ``flying``: out of service."""

    title: str
    total: int
    done: int
    flying: int
    failed: int


class UnnamedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that wait and that the engine did not name: there are too many."""

    reason: str
    count: int


class LastRunDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last run that is kept on the machine that was asked; `grapnel report` has all of it."""

    run: str
    verb: str
    by: str
    state: State
    began: Time
    counts: dict[str, int]


class LastResultDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes of which the same run left the same. ``as_declared``: an apply, and nothing changed them since.

    ``remedy`` and ``command`` are empty where nothing is wrong.
    """

    nodes: tuple[str, ...]
    run: str
    result: str
    as_declared: bool
    remedy: str = ""
    command: str = ""


class StackTroubleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why one node of a stack is not as declared."""

    node: str
    message: str


class StackDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a GpuStack of the cluster says that it stands. ``state`` is empty where no controller has looked at it.

    ``outdated``: that is about an earlier declaration.
    """

    name: str
    state: str
    message: str
    driver: str
    nodes: dict[str, int]
    troubles: tuple[StackTroubleDocument, ...] = ()
    outdated: bool = False


class StatusDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the upgrade of a fleet stands. ``states`` explains the states of its nodes.

    ``published`` is when the engine last said why nodes wait, ``stop`` why no further node begins.
    """

    schema: Literal["grapnel.dev/status/v1alpha1"]
    place: str
    time: Time
    engine: EngineDocument | None
    pause: PauseDocument | None
    published: Time | None
    stop: str
    left_seconds: Seconds | None
    measured_nodes: int
    needs_somebody: bool
    states: dict[str, SituationDocument]
    waves: list[WaveDocument]
    nodes: list[NodeDocument]
    unnamed: list[UnnamedDocument]
    complaints: list[str]
    stacks: list[StackDocument] = []
    controller: EngineDocument | None = None
    last_run: LastRunDocument | None = None
    last_results: list[LastResultDocument] = []


def status_document(status: FleetStatus, history: History | None = None, invocation: Invocation = BARE) -> str:
    """Return it as JSON, nodes in their order."""
    seen = status.seen
    found = {node.situation.key: status.told(node.situation) for node in status.nodes}
    document = StatusDocument(
        schema=SCHEMA,
        place=seen.place,
        time=seen.time,
        engine=None if seen.tenant is None else _engine(seen.tenant),
        pause=None if seen.pause is None else _pause(seen.pause),
        published=None if seen.standing is None else seen.standing.time,
        stop="" if seen.standing is None else seen.standing.stop,
        left_seconds=_rounded(status.left_s),
        measured_nodes=status.measured,
        needs_somebody=status.needs_somebody,
        states={
            key: SituationDocument(
                means=one.means, follows=one.follows, todo=one.todo, needs_somebody=one.needs_somebody
            )
            for key, one in found.items()
        },
        waves=[
            WaveDocument(title=one.title, total=one.total, done=one.done, flying=one.flying, failed=one.failed)
            for one in status.waves
        ],
        nodes=[_node(node, status.told(node.situation).todo, invocation) for node in status.nodes],
        unnamed=[UnnamedDocument(reason=reason, count=count) for reason, count in status.unnamed],
        complaints=list(seen.complaints),
        stacks=[_stack(stack) for stack in seen.stacks],
        controller=None if seen.controller is None else _engine(seen.controller),
        last_run=None if history is None or history.last is None else _last_run(history.last),
        last_results=[] if history is None else _last_results(history, [node.name for node in status.nodes]),
    )
    return printable_json(msgspec.to_builtins(document))


def _last_run(last: RunReport) -> LastRunDocument:
    return LastRunDocument(
        run=last.run, verb=last.verb, by=last.by, state=last.state, began=last.began, counts=last.counts
    )


def _last_results(history: History, nodes: Sequence[str]) -> list[LastResultDocument]:
    """Return what past runs left of nodes, those together of which it is the same."""
    good, alike = set(history.as_declared), dict[tuple[str, str, bool, str, str], list[str]]()
    for name in nodes:
        if (one := history.nodes.get(name)) is not None:
            alike.setdefault((one.run, one.result, name in good, one.remedy, one.command), []).append(name)
    return [
        LastResultDocument(
            nodes=tuple(those), run=run, result=result, as_declared=is_good, remedy=remedy, command=command
        )
        for (run, result, is_good, remedy, command), those in alike.items()
    ]


def _engine(tenant: Tenant) -> EngineDocument:
    return EngineDocument(holder=tenant.holder, since=tenant.since, heard=tenant.heard, at_work=tenant.is_at_work)


def _stack(stack: StackSeen) -> StackDocument:
    return StackDocument(
        name=stack.name,
        state=stack.state,
        message=stack.message,
        driver=stack.driver,
        nodes=dict(stack.nodes),
        troubles=tuple(StackTroubleDocument(node=each.node, message=each.message) for each in stack.troubles),
        outdated=stack.is_outdated,
    )


def _pause(pause: Pause) -> PauseDocument:
    return PauseDocument(by=pause.by, since=pause.since, reason=pause.reason)


def _node(node: NodeStatus, todo: str, invocation: Invocation) -> NodeDocument:
    record = node.record
    return NodeDocument(
        name=node.name,
        state=node.situation.key,
        since=node.since,
        began=None if record is None else record.began,
        phase=None if record is None else record.phase,
        failed_in=None if record is None else record.failed_in,
        origin=None if record is None else record.origin or None,
        target=None if record is None else record.target or None,
        reason=node.reason,
        left_seconds=_rounded(node.left_s),
        took={} if record is None else dict(record.took),
        wave=node.wave,
        domain=node.domain,
        remarks=node.remarks,
        commands=invocation.commands(todo, [node.name], is_whole=bool(node.domain)),
        declared=declared_document(node),
        machine=machine_document(node),
        unknown=unknown_documents(node),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
