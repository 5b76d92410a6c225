"""Makes one document of a run's events, in whatever state the run was left. Pure."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.model import Status
from provision.base.errors import ExitCode
from provision.report.runs import events as happened
from provision.report.runs.model import SCHEMA, Group, NodeReport, Note, RunReport, State, StepTotal, Trouble
from provision.report.runs.remedies import KILLED, command_for, remedy_for
from provision.report.runs.spans import NodeTimes
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from provision.report.runs.spans import Kind

NOTES: Final = 200
WAITS: Final = 20  # of one node
STEPS: Final = 200
_OVER: Final = {Phase.FAILED.value: "failed", Phase.DONE.value: "", Phase.RETURNED.value: ""}
_NO_TROUBLE: Final = frozenset({Status.UNCHANGED.value, State.DECLINED.value})
_ORDER: Final = {status.value: number for number, status in enumerate(reversed(Status))}


@dataclass(slots=True)
class _Node:
    """What is known of one node."""

    times: NodeTimes
    plan: happened.Planned | None = None
    ended: happened.NodeEnded | None = None
    waits: list[str] = field(default_factory=list)
    reason: str = ""


@dataclass(slots=True)
class _Run:
    """Everything that the events say."""

    began: happened.Began
    last: datetime
    gathered: float | None = None
    end: happened.Ended | None = None
    nodes: dict[str, _Node] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    is_cut: bool = False

    def node(self, name: str) -> _Node:
        return self.nodes.setdefault(name, _Node(NodeTimes(self.began.time)))

    def take(self, event: happened.RunEvent) -> None:
        """Take note of an event."""
        self.last = max(self.last, event.time)
        if isinstance(event, happened.Planned):
            self._plan(event)
        elif isinstance(event, happened.Ended):
            self.end = event
        elif isinstance(event, happened.Cut):
            self.is_cut = True
        elif isinstance(event, happened.Noted):
            self._note(event.time, event.node, event.text)
        elif not isinstance(event, happened.Began):
            self._of_node(self.node(event.node), event)

    def _plan(self, event: happened.Planned) -> None:
        self.gathered = (event.time - self.began.time).total_seconds() if self.gathered is None else self.gathered
        for name in event.nodes:
            self.node(name).plan = event

    def _note(self, time: datetime, node: str, text: str) -> None:
        if len(self.notes) < NOTES:
            seconds = round(max(0.0, (time - self.began.time).total_seconds()), 2)
            self.notes.append(Note(seconds=seconds, node=node, text=text))

    def _of_node(self, node: _Node, event: happened.RunEvent) -> None:
        times = node.times
        if isinstance(event, happened.NodeEnded):
            node.ended = event
            times.finish(event.time)
        elif isinstance(event, happened.StepBegan):
            times.begin("step", event.step, event.time)
        elif isinstance(event, happened.StepEnded):
            times.end("step", event.time, event.outcome)
        elif isinstance(event, happened.PhaseBegan):
            self._phase(node, event)
        elif isinstance(event, happened.Stage):
            times.end("stage", event.time) if event.done else times.begin("stage", "stage", event.time)
        elif isinstance(event, happened.Waited) and event.reason and len(node.waits) < WAITS:
            node.waits.append(event.reason)

    def _phase(self, node: _Node, event: happened.PhaseBegan) -> None:
        if event.reason:
            node.reason = event.reason
            self._note(event.time, event.node, f"{event.phase}: {event.reason}")
        if event.phase in _OVER:
            node.times.end("phase", event.time, _OVER[event.phase])
        else:
            node.times.begin("phase", event.phase, event.time)


def digest(
    events: Iterable[happened.RunEvent], *, is_going_on: bool, log: str | None = None, artifacts: str | None = None
) -> RunReport | None:
    """Return what a run came to, None where not even its beginning was written down.

    ``is_going_on``: the process still runs, and what has no end yet may have one later.
    """
    run: _Run | None = None
    for event in events:
        if run is None:
            if not isinstance(event, happened.Began):
                continue
            run = _Run(event, event.time)
        run.take(event)
    return None if run is None else _document(run, is_going_on=is_going_on, log=log, artifacts=artifacts)


def _document(run: _Run, *, is_going_on: bool, log: str | None, artifacts: str | None) -> RunReport:
    began, end = run.began, run.end
    state = _state(end, is_going_on=is_going_on)
    reports = tuple(_node(name, node, state) for name, node in run.nodes.items())
    return RunReport(
        schema=SCHEMA,
        run=began.run,
        verb=began.command[0] if began.command else "",
        command=_shown(began.command),
        by=began.by,
        grapnel=began.grapnel,
        inventory=began.inventory,
        state=state,
        exit_code=None if end is None else end.exit_code,
        error="" if end is None else end.error,
        hint="" if end is None else end.hint,
        began=began.time,
        ended=None if end is None else end.time,
        seconds=round(max(0.0, (run.last - began.time).total_seconds()), 2),
        gathered_seconds=None if run.gathered is None else round(max(0.0, run.gathered), 2),
        log=log,
        artifacts=artifacts,
        is_cut=run.is_cut,
        counts=dict(sorted(Counter(one.result for one in reports).items(), key=lambda each: _ORDER.get(each[0], -1))),
        troubles=_troubles(run, reports),
        groups=_groups(run, reports),
        nodes=reports,
        steps=_totals(reports),
        notes=tuple(sorted(run.notes, key=lambda note: note.seconds)),
    )


def _shown(command: Sequence[str]) -> str:
    return shlex.join(["grapnel", *command])


def _state(end: happened.Ended | None, *, is_going_on: bool) -> State:
    if end is None:
        return State.RUNNING if is_going_on else State.KILLED
    if end.declined:
        return State.DECLINED
    if end.exit_code == ExitCode.INTERRUPTED:
        return State.INTERRUPTED
    return State.SUCCEEDED if end.exit_code == ExitCode.DONE else State.FAILED


def _node(name: str, node: _Node, state: State) -> NodeReport:
    ended, times = node.ended, node.times
    result = _unended(node, state) if ended is None else ended.result
    return NodeReport(
        name=name,
        result=result,
        is_good=result in _NO_TROUBLE or state is State.RUNNING if ended is None else ended.is_good,
        changes=0 if ended is None else ended.changes,
        passes=0 if ended is None else ended.passes,
        message=_unended_words(node, result) if ended is None else ended.message,
        origin="" if ended is None else ended.origin,
        target="" if ended is None else ended.target,
        began_seconds=times.began,
        seconds=None if times.began is None or times.ended is None else round(max(0.0, times.ended - times.began), 2),
        out_of_service_seconds=None if ended is None else ended.out_of_service_seconds,
        is_out=ended is not None and ended.is_out,
        waits=tuple(node.waits),
        spans=times.spans(),
    )


def _unended(node: _Node, state: State) -> str:
    """Return the result of a node whose end was not written down."""
    if state is State.DECLINED:
        return state.value
    if node.plan is not None and not node.plan.items and not node.plan.problems:
        return Status.UNCHANGED.value
    if node.times.began is None:
        return Status.WAITING.value
    return state.value if state is State.RUNNING else KILLED


def _unended_words(node: _Node, result: str) -> str:
    if result == Status.WAITING.value:
        return "nothing was begun on it"
    if result == State.RUNNING.value:
        return f"at {node.times.doing}" if node.times.doing else ""
    return f"the run ended without a word while it was at: {node.times.doing or 'its plan'}" if result == KILLED else ""


def _troubles(run: _Run, reports: Iterable[NodeReport]) -> tuple[Trouble, ...]:
    """Return why nodes are not where they should be: equal reasons once, what is out of service first."""
    alike: dict[tuple[object, ...], list[NodeReport]] = defaultdict(list)
    for one in reports:
        if not one.is_good:
            alike[_reason(run.nodes[one.name], one)].append(one)
    found = [_trouble(run.nodes[nodes[0].name], nodes, run.began.command) for nodes in alike.values()]
    return tuple(sorted(found, key=lambda one: (not one.out_of_service, _ORDER.get(one.result, -1), -len(one.nodes))))


def _reason(node: _Node, report: NodeReport) -> tuple[object, ...]:
    """Return what nodes have in common that are in the same trouble: their own names make no difference."""
    task, output = ("", ()) if node.ended is None else (node.ended.task, node.ended.output)
    texts = (report.message, *output)
    return report.result, report.is_out, task, tuple(text.replace(report.name, "NODE") for text in texts)


def _trouble(node: _Node, nodes: list[NodeReport], command: Sequence[str]) -> Trouble:
    """Return the trouble of nodes that are alike, in the words of the first."""
    first, ended = nodes[0], node.ended
    problems = () if node.plan is None else node.plan.problems
    names = tuple(one.name for one in nodes)
    return Trouble(
        nodes=names,
        result=first.result,
        task="" if ended is None else ended.task,
        message=first.message or ("" if ended is None else ended.note),
        output=() if ended is None else ended.output,
        remedy=remedy_for(first.result, problems, is_out=first.is_out),
        command=_shown(command_for(command, names, problems if first.result == Status.REFUSED.value else ())),
        out_of_service=first.is_out,
    )


def _groups(run: _Run, reports: Iterable[NodeReport]) -> tuple[Group, ...]:
    """Return nodes that had equal plans and results together: what went wrong first, what was unchanged last."""
    alike: dict[tuple[object, ...], list[NodeReport]] = defaultdict(list)
    for one in reports:
        plan, ended = run.nodes[one.name].plan, run.nodes[one.name].ended
        items = () if plan is None else plan.items
        derived = () if plan is None else plan.derived
        note = "" if ended is None else ended.note
        alike[one.result, one.is_good, items, derived, note].append(one)
    groups = []
    for nodes in alike.values():
        first = run.nodes[nodes[0].name]
        groups.append(
            Group(
                nodes=tuple(one.name for one in nodes),
                result=nodes[0].result,
                is_good=nodes[0].is_good,
                items=() if first.plan is None else first.plan.items,
                derived=() if first.plan is None else first.plan.derived,
                note="" if first.ended is None else first.ended.note,
            )
        )
    return tuple(sorted(groups, key=lambda one: (one.is_good, _ORDER.get(one.result, -1), -len(one.nodes))))


def _totals(reports: Iterable[NodeReport]) -> tuple[StepTotal, ...]:
    """Return what took how long, what took longest in the middle first."""
    took: dict[tuple[Kind, str], list[tuple[float, str]]] = defaultdict(list)
    for one in reports:
        of_node: dict[tuple[Kind, str], float] = defaultdict(float)
        for span in one.spans:
            of_node[span.kind, span.name] += span.seconds or 0.0
        for key, seconds in of_node.items():
            took[key].append((seconds, one.name))
    totals = [
        StepTotal(
            kind=kind,
            name=name,
            nodes=len(found),
            median_seconds=round(statistics.median(seconds for seconds, _ in found), 2),
            longest_seconds=max(found)[0],
            slowest=max(found)[1],
        )
        for (kind, name), found in took.items()
    ]
    return tuple(sorted(totals, key=lambda one: (-one.median_seconds, one.name))[:STEPS])
