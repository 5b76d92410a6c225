"""Renders plans as a person reads them: nodes with the same plan together, items with the same reason together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table

from provision.apply.carried_out import step_of
from provision.apply.model import Failure
from provision.declaration.fleet.series import in_series
from provision.planning.node_plan import Action, Disruption
from provision.report.console import Text
from provision.report.planned.alike import failed_alike, kinds_of, spelled_out
from provision.report.runs.durations import NOTHING_KNOWN, WHOLE
from provision.report.terminal import (
    ACTION_STYLES,
    DISRUPTION_STYLES,
    STATUS_STYLES,
    count,
    duration,
    hanging,
    names,
    short,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from provision.apply.model import Assessment
    from provision.planning.node_plan import Item, NodePlan, Problem
    from provision.report.planned.alike import AlikeNodes

Answers = Mapping[str, "Assessment | Failure"]
INDENT = 2
GAP = 2  # between columns
ACTION_WIDTH = 9
TARGET_WIDTH = 32  # what a common target may take of 80 columns, so that versions line up
DEFERRED = "after installation"
STAGED = "drain, after staging"
WORTH_S = 1  # what took less last time is no news


def render_plans(
    answers: Answers, refused: Mapping[str, Failure] | None = None, last: Mapping[str, float] = NOTHING_KNOWN
) -> Iterator[RenderableType]:
    """Yield the parts of the overview: each distinct plan, what could not be planned, and a summary line.

    ``refused`` are nodes that are not touched although their plans have no problems. ``last`` are the seconds that
    steps took last time.
    """
    planned = {node: answer for node, answer in answers.items() if not isinstance(answer, Failure)}
    plans = {node: answer.plan for node, answer in planned.items()}
    refusals = {node: failure.message for node, failure in (refused or {}).items()}
    shown, others = spelled_out(kinds_of(planned, refusals))
    for kind in shown:
        yield from _render_plan(kind.nodes, kind.plan, kind.refusal, last)
        yield ""
    yield from _render_others(others)
    failures = [(node, answer) for node, answer in answers.items() if isinstance(answer, Failure)]
    for failure, nodes in failed_alike(failures):
        yield _failure(nodes, failure)
    if failures:
        yield ""
    yield Text.assemble((_summary(len(answers), plans, refusals), "bold"), (_whole(plans, last), "dim"))


def _whole(plans: Mapping[str, NodePlan], last: Mapping[str, float]) -> str:
    seconds = last.get(WHOLE, 0)
    if seconds < WORTH_S or all(plan.is_empty or plan.problems for plan in plans.values()):
        return ""
    return f"; {duration(seconds)} a node last time"


def _summary(nodes: int, of_nodes: Mapping[str, NodePlan], refusals: Mapping[str, str]) -> str:
    plans = list(of_nodes.values())
    changing = [plan for plan in plans if plan.items and not plan.problems and plan.node not in refusals]
    changes = sum(len(plan.items) for plan in changing)
    parts = [f"{len(changing)} to change ({count(changes, 'change')})"] if changing else []
    as_declared = sum(plan.is_empty for plan in plans)
    if as_declared:
        parts.append(f"{as_declared} as declared")
    problems = sum(bool(plan.problems) for plan in plans)
    if problems:
        parts.append(f"{problems} with problems")
    if refusals:
        parts.append(f"{len(refusals)} refused")
    if len(plans) < nodes:
        parts.append(f"{nodes - len(plans)} without facts")
    return f"{count(nodes, 'node')}: {', '.join(parts) or 'nothing to do'}"


def _render_others(kinds: Sequence[AlikeNodes]) -> Iterator[RenderableType]:
    """Say of plans that are not spelled out what they come to."""
    found: dict[tuple[str, tuple[str, ...]], list[AlikeNodes]] = {}
    for kind in kinds:
        codes = tuple(dict.fromkeys(problem.code for problem in kind.plan.problems))
        found.setdefault((_headline(kind.plan).plain, codes), []).append(kind)
    for (_, codes), alike in found.items():
        yield _heading([node for kind in alike for node in kind.nodes], alike[0].plan)
        if codes:
            yield hanging(INDENT, Text.assemble(("problem: ", "bold red"), ", ".join(codes)))
        if refused := sum(len(kind.nodes) for kind in alike if kind.refusal):
            yield hanging(INDENT, Text(f"refused: {count(refused, 'node')}", "bold yellow"))
        told = (
            f"{count(len(alike), 'different plan')}, not spelled out: `grapnel plan NODE` has one, --json all of them"
        )
        yield hanging(INDENT, Text(told, "dim"))
        yield ""


def _render_plan(nodes: list[str], plan: NodePlan, refusal: str, last: Mapping[str, float]) -> Iterator[RenderableType]:
    left = dict(last)  # a step carries out several items: its seconds are told once
    yield _heading(nodes, plan)
    for derived in plan.derived:
        yield hanging(
            INDENT, Text.assemble((f"{derived.key}: ", "bold"), derived.value, (f"  {derived.reason}", "dim"))
        )
    with_versions = [len(item.target) for item in plan.items if _versions(item)]
    target_width = min(max(with_versions, default=0), TARGET_WIDTH)
    for (role, reason), together in groupby(plan.items, key=lambda item: (item.role, item.reason)):
        items = list(together)
        yield hanging(INDENT, Text.assemble((f"{role}: ", "bold"), (reason, ""), (_last_time(items, left), "dim")))
        yield _Items(items, target_width)
    for problem in plan.problems:
        yield from _problem("problem: ", "bold red", problem)
    for warning in plan.warnings:
        yield from _problem("warning: ", "bold yellow", warning)
    if refusal:
        yield hanging(INDENT, Text(f"refused: {refusal}", "bold yellow"))


def _last_time(items: Sequence[Item], left: dict[str, float]) -> str:
    """Return how long the steps of these items took last time, and take them from what is left to tell."""
    seconds = sum(left.pop(step, 0) for step in {step_of(item) for item in items})
    return "" if seconds < WORTH_S else f"  {duration(seconds)} last time"


def _heading(nodes: list[str], plan: NodePlan) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(Text(names(nodes), "bold cyan"), _headline(plan))
    return grid


def _headline(plan: NodePlan) -> Text:
    if plan.problems:
        return Text(count(len(plan.problems), "problem"), "bold red")
    if not plan.items:
        return Text("as declared", "green")
    text = Text(count(len(plan.items), "change"))
    if plan.disruption is not Disruption.NONE:
        text.append(f", {plan.disruption}", DISRUPTION_STYLES[plan.disruption])
    return text


@dataclass(frozen=True)
class _Items:
    """A line for each item, in columns where all of them fit; what is too long for one goes on below, whole."""

    items: Sequence[Item]
    target_width: int

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table for a width."""
        room = options.max_width - INDENT - ACTION_WIDTH - 2 * GAP
        rows = [(Text(item.target), Text(_versions(item)), _cost(item)) for item in self.items]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        widths[0] = max(widths[0], self.target_width)
        is_table = sum(widths) + GAP * (sum(map(bool, widths)) - 1) <= room
        grid = Table.grid(padding=(0, GAP, 0, 0))
        grid.add_column(width=INDENT)
        grid.add_column(no_wrap=True, min_width=ACTION_WIDTH)
        grid.add_column(overflow="fold")
        for item, row in zip(self.items, rows, strict=True):
            style = "dim" if item.deferred else ""
            for cell in row[:2]:
                cell.stylize(style)
            action = Text(item.action.value, style or ACTION_STYLES.get(item.action, "green"))
            first, *more = [_in_columns(row, widths)] if is_table else _in_lines(row, room)
            grid.add_row("", action, first)
            for line in more:
                grid.add_row("", "", line)
        yield grid


def _in_columns(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, width in zip(cells, widths, strict=True):
        if width:
            line.append(" " * GAP if len(line) else "").append(cell).append(" " * (width - len(cell)))
    line.rstrip()
    return line


def _in_lines(cells: Sequence[Text], room: int) -> list[Text]:
    """Return cells behind one another; one that has no room on its line begins the next one."""
    lines = [Text()]
    for cell in filter(len, cells):
        if len(lines[-1]) and len(lines[-1]) + GAP + len(cell) > room:
            lines.append(Text())
        lines[-1].append(" " * GAP if len(lines) > 1 or len(lines[-1]) else "").append(cell)
    return lines


def _versions(item: Item) -> str:
    if item.action is Action.WRITE:  # a file's digests tell a reader nothing
        return ""
    return " → ".join(short(value) for value in (item.from_, item.to) if value is not None)


def _cost(item: Item) -> Text:
    if item.deferred:
        return Text(STAGED if item.disruption is Disruption.DRAIN else DEFERRED, "dim italic")
    if item.disruption is Disruption.NONE:
        return Text("")
    return Text(item.disruption.value, DISRUPTION_STYLES[item.disruption])


def _problem(word: str, style: str, problem: Problem) -> Iterator[RenderableType]:
    yield hanging(INDENT, Text.assemble((word, style), problem.message, (f" ({problem.code})", "dim")))
    if problem.hint:
        yield hanging(2 * INDENT, Text.assemble(("hint: ", "cyan"), problem.hint))


def _failure(nodes: Sequence[str], failure: Failure) -> RenderableType:
    where = f" in '{failure.task}'" if failure.task else ""
    head = (f"{failure.status.value}{where}: ", STATUS_STYLES[failure.status])
    return hanging(Text(f"{names(in_series(nodes))}  ", "bold cyan"), Text.assemble(head, failure.message))
