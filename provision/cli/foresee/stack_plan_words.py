"""Says what the controller would do for GpuStacks: for people, and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable, printable_json
from provision.controller.decision.outlook import Comes
from provision.controller.stacks.model import Unreadable
from provision.declaration.fleet.series import in_series
from provision.report.console import Text
from provision.report.terminal import count, hanging, names
from provision.rollout.interface.pause import RESUME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from rich.console import RenderableType

    from provision.controller.decision.outlook import NodeOutlook, Outlook
    from provision.controller.decision.stack_plans import Difference, StackPlan
    from provision.rollout.interface.pause import Pause
    from provision.rollout.status.model import Tenant

SCHEMA: Final = "grapnel.dev/stack-plans/v1alpha1"
_INDENT: Final = 2
_LONGEST_VALUE: Final = 60
_STYLES: Final = {
    Comes.DUE: "bold yellow",
    Comes.BUSY: "bold yellow",
    Comes.LEFT_FAILED: "bold red",
    Comes.UNCLEAR: "bold red",
    Comes.SKIPPED: "bold",
    Comes.AS_DECLARED: "bold green",
}
_NOT_ASKED: Final = "no node was asked: its Job finds what changes on it. Waves are told as if all had to leave service"
_NOTHING_SAID: Final = "which nodes are due was worked out by this grapnel alone: the controller has said nothing of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What the controller would do in a cluster. ``complaints`` are what was not read.

    ``controller`` is the replica that leads, ``tenant`` who is at work on nodes, which may be a terminal.
    """

    place: str
    stacks: tuple[StackPlan, ...]
    time: datetime
    tenant: Tenant | None = None
    controller: Tenant | None = None
    pause: Pause | None = None
    complaints: tuple[str, ...] = ()


def render_cluster_plan(plan: ClusterPlan, file: str) -> Iterator[RenderableType]:
    """Yield who would do it, and stack by stack what; ``file`` is what is yet to be applied, empty for nothing."""
    yield Text(plan.place, "dim")
    leader, tenant = plan.controller, plan.tenant
    if leader is not None and leader.is_at_work:
        yield Text.assemble((leader.holder, "bold"), " is the leading controller")
    else:
        yield Text("no controller is at work: nothing is done until one is", "yellow")
    if tenant is not None and tenant.is_at_work and (leader is None or tenant.holder != leader.holder):
        yield Text.assemble((tenant.holder, "bold"), " is changing nodes: the controller goes on when that has ended")
    if plan.pause is not None:
        yield hanging(Text("paused ", "bold yellow"), Text(f"{plan.pause}; {RESUME}"))
    for complaint in plan.complaints:
        yield hanging(Text("· ", "yellow"), Text(complaint, "yellow"))
    if not plan.stacks:
        yield Text("the cluster has no GpuStack: `kubectl apply -f` one, or `grapnel plan -f` it first")
    for stack in plan.stacks:
        yield ""
        yield from _stack(stack, file)
    if any(stack.is_change for stack in plan.stacks):
        yield ""
        yield Text(
            "what changes on a node is known when its Job has looked at it; waves are told for the most that can come",
            "dim",
        )


def _stack(plan: StackPlan, file: str) -> Iterator[RenderableType]:
    stack, outlook = plan.stack, plan.outlook
    yield Text.assemble((stack.name, "bold cyan"), f"  {_headline(plan, file)}")
    if isinstance(stack, Unreadable):
        for reason in stack.reasons:
            yield hanging(_INDENT, Text.assemble(("refused: ", "bold red"), reason))
        return
    for reason in plan.refused_now:
        yield hanging(_INDENT, Text.assemble(("refused now: ", "bold red"), reason))
    for each in plan.changes:
        yield hanging(_INDENT, _difference(each))
    for word, moved in (("joins", plan.joining), ("leaves", plan.leaving)):
        if moved:
            what = f"{word} the stack" if len(moved) == 1 else f"{word.removesuffix('s')} the stack"
            yield hanging(_INDENT, Text.assemble((names(in_series(moved)), "bold"), f" {what}"))
    for node, others in sorted(plan.disputed.items()):
        said = f"GpuStack {', '.join(others)} selects it as well: nothing is done until one of them lets it go"
        yield hanging(_INDENT, Text.assemble((f"{node}: ", "bold red"), said))
    if plan.is_guessed and outlook is not None and outlook.named(Comes.DUE):
        yield hanging(_INDENT, Text(_NOTHING_SAID, "yellow"))
    if outlook is not None:
        yield from _outlook(outlook)


def _headline(plan: StackPlan, file: str) -> str:
    if plan.stack.is_going:
        return "is deleted: its nodes stay as they are"
    total = 0 if plan.outlook is None else len(plan.outlook.nodes)
    if isinstance(plan.stack, Unreadable):
        return "is refused: its nodes stay as they are"
    if plan.is_new:
        return f"is new: {file} gives it {count(total, 'node')}"
    if plan.is_proposed and not (plan.changes or plan.joining or plan.leaving or plan.refused_now):
        return f"is as in {file}; {count(total, 'node')}"
    return f"with {file}: {count(total, 'node')}" if plan.is_proposed else count(total, "node")


def _difference(each: Difference) -> Text:
    note = "" if each.is_about_machines else "  (how nodes are changed: none is due for it)"
    return Text.assemble((f"{each.key}: ", "bold"), f"{_value(each.before)} → {_value(each.after)}", (note, "dim"))


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "1 entry" if len(value) == 1 else f"{len(value)} entries"
    return printable(json.dumps(value), limit=_LONGEST_VALUE)


def _outlook(outlook: Outlook) -> Iterator[RenderableType]:
    for comes in Comes:
        found = outlook.named(comes)
        if not found:
            continue
        yield hanging(_INDENT, Text.assemble((comes.value, _STYLES[comes]), f"  {count(len(found), 'node')}"))
        if comes is Comes.AS_DECLARED:
            continue
        for nodes, why, waits_for in _alike(found):
            yield hanging(2 * _INDENT, Text(names(in_series(nodes)), "cyan"))
            for reason in why:
                yield hanging(3 * _INDENT, Text(reason))
            if waits_for:
                yield hanging(3 * _INDENT, Text.assemble(("waits: ", "yellow"), waits_for))
    yield from _waves(outlook)


def _alike(nodes: Iterable[NodeOutlook]) -> Iterator[tuple[list[str], tuple[str, ...], str]]:
    """Yield the nodes that are due and wait for the same reasons together, the most first."""
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for node in nodes:
        found.setdefault((node.why, node.waits_for), []).append(node.name)
    for (why, waits_for), alike in sorted(found.items(), key=lambda entry: -len(entry[1])):
        yield alike, why, waits_for


def _waves(outlook: Outlook) -> Iterator[RenderableType]:
    """Yield how the nodes that are due would leave service, if all of them had to."""
    leaving = [node for node in outlook.nodes if node.wave is not None or node.comes in (Comes.DUE, Comes.BUSY)]
    if not leaving:
        return
    policy, total = outlook.policy, len(outlook.nodes)
    most = f"{min(policy.max_parallel, total)} at a time, at most {min(policy.max_unavailable, total)} of {total} out"
    yield hanging(_INDENT, Text.assemble(("rollout", "bold"), f"  {most}"))
    if outlook.closed and all(node.waits_for != outlook.closed for node in leaving):  # else it was said already
        yield hanging(2 * _INDENT, Text(f"no node leaves service now: {outlook.closed}", "yellow"))
    for index, wave in enumerate(policy.waves):
        members = [node.name for node in leaving if node.wave == index]
        yield hanging(2 * _INDENT, Text(f"{wave.title}: {names(in_series(members)) if members else 'nothing to do'}"))


def cluster_plan_document(plan: ClusterPlan) -> str:
    """Return the same as JSON: what docs/gpustacks.md says of it."""
    return printable_json(
        {
            "schema": SCHEMA,
            "place": plan.place,
            "time": f"{plan.time:%Y-%m-%dT%H:%M:%SZ}",
            "engine": _tenant(plan.tenant),
            "controller": _tenant(plan.controller),
            "pause": None if plan.pause is None else str(plan.pause),
            "complaints": list(plan.complaints),
            "stacks": [_stack_document(each) for each in plan.stacks],
        }
    )


def _tenant(tenant: Tenant | None) -> dict[str, object] | None:
    return None if tenant is None else {"holder": tenant.holder, "atWork": tenant.is_at_work}


def _stack_document(plan: StackPlan) -> dict[str, object]:
    stack, outlook = plan.stack, plan.outlook
    return {
        "name": stack.name,
        "state": plan.status.state,
        "proposed": plan.is_proposed,
        "new": plan.is_new,
        "going": stack.is_going,
        "refused": list(stack.reasons if isinstance(stack, Unreadable) else plan.refused_now),
        "changes": [
            {"key": each.key, "before": each.before, "after": each.after, "machines": each.is_about_machines}
            for each in plan.changes
        ],
        "joining": list(plan.joining),
        "leaving": list(plan.leaving),
        "disputed": {node: list(others) for node, others in sorted(plan.disputed.items())},
        "guessed": plan.is_guessed,
        "closed": "" if outlook is None else outlook.closed,
        "waves": [] if outlook is None else [wave.title for wave in outlook.policy.waves],
        "nodes": []
        if outlook is None
        else [
            {
                "node": node.name,
                "comes": node.comes.value,
                "why": list(node.why),
                "waitsFor": node.waits_for,
                "wave": None
                if node.wave is None or not outlook.policy.waves
                else outlook.policy.waves[node.wave].title,
            }
            for node in outlook.nodes
        ],
    }


def _wave(node: NodeOutlook, outlook: Outlook) -> str | None:
    return None if node.wave is None or not outlook.policy.waves else outlook.policy.waves[node.wave].title
