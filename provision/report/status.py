"""Renders how a fleet's upgrade stands: a block for each state, what needs somebody first, equal nodes together."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from rich.table import Table

from provision.base.printable import brief
from provision.declaration.fleet.series import in_series
from provision.report.console import Text
from provision.report.nodes import machine_facts, render_nodes
from provision.report.runs.remedies import BARE
from provision.report.terminal import age, count, hanging, names
from provision.rollout.interface.pause import RESUME
from provision.rollout.model import ChangeKind
from provision.rollout.status.situations import (
    AT_WORK,
    DONE,
    GIVE_UP,
    IDLE,
    NOT_BEGUN,
    PUT_BACK,
    RETURNED,
    SITUATIONS,
    WAITING,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from provision.report.runs.history import History
    from provision.report.runs.remedies import Invocation
    from provision.rollout.model import Record
    from provision.rollout.status.model import FleetStatus, NodeStatus, Seen, StackSeen, Tenant, WaveStatus
    from provision.rollout.status.situations import Situation

REASONS_SHOWN: Final = 8  # of one state
_INDENT: Final = 2
_STACKS: Final = {
    "AsDeclared": "bold green",
    "Changing": "bold yellow",
    "Waiting": "bold yellow",
    "Degraded": "bold red",
    "Refused": "bold red",
}
_REFUSED: Final = "Refused"
_WORDS: Final = re.compile(r"([^\w.-]+)")  # split by this, a node's name is one word


def render_status(
    status: FleetStatus, invocation: Invocation = BARE, history: History | None = None
) -> Iterator[RenderableType]:
    """Yield who is at work, a summary, the states of the nodes, and what is known of their machines."""
    yield from _head(status, invocation)
    yield from _stacks(status.seen.stacks)
    for situation in SITUATIONS:
        nodes = [node for node in status.nodes if node.situation is situation]
        if nodes and (situation is not IDLE or any(node.reason for node in nodes)):
            yield ""
            yield from _block(status.told(situation), nodes, status.seen.time, invocation)
    for reason, number in status.unnamed:
        yield hanging(_INDENT, Text(f"{count(number, 'node')} not named here: {reason}", "dim"))
    yield from render_nodes(status.nodes, history, status.seen.time)


def render_node_status(
    status: FleetStatus, name: str, invocation: Invocation = BARE, history: History | None = None
) -> Iterator[RenderableType]:
    """Yield everything that is known of one node."""
    node = next(each for each in status.nodes if each.name == name)
    record, now, situation = node.record, status.seen.time, status.told(node.situation)
    yield from _who(status.seen, invocation)
    yield ""
    yield Text.assemble((f"{name}: ", "bold cyan"), (situation.title, _style(situation)))
    facts = [("means", situation.means)]
    if node.reason:
        facts.append(("reason", node.reason))
    facts += [(label, text) for label, text in (("wave", node.wave), ("domain", node.domain)) if text]
    facts += [("note", remark) for remark in node.remarks]
    facts.append(("next", situation.follows))
    if situation.todo:
        facts.append(("do", invocation.complete(situation.todo, [name], is_whole=bool(node.domain))))
    if record is not None:
        facts += changes_of(record)
        facts += [(label, _moment(at, now)) for label, at in (("began", record.began), ("since", record.since))]
    if node.left_s is not None:
        facts.append(("left", f"about {age(node.left_s)}, {_measured(status)}"))
    if record is not None and record.took:
        facts.append(("took", ", ".join(f"{phase} {age(seconds)}" for phase, seconds in record.took.items())))
    if situation.needs_somebody and record is not None:
        facts.append(("or", invocation.complete(GIVE_UP, [name])))
    facts += machine_facts(node, history, now)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=_INDENT + 9, no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(f"  {label}", Text(text))
    yield grid


def _head(status: FleetStatus, invocation: Invocation) -> Iterator[RenderableType]:
    yield from _who(status.seen, invocation)
    for complaint in status.seen.complaints:
        yield hanging(Text("· ", "yellow"), Text(complaint, "yellow"))
    is_idle = all(node.situation is IDLE for node in status.nodes)
    counts = [
        f"{number} {situation.title}"
        for situation in SITUATIONS
        if not is_idle and (number := sum(node.situation is situation for node in status.nodes))
    ]
    left = "" if status.left_s is None else f"; about {age(status.left_s)} left, {_measured(status)}"
    if not status.nodes and status.seen.stacks:
        return  # those of the stacks are told with them
    ready = "all ready, " if status.nodes and all(node.reported is not None for node in status.nodes) else ""
    none = f"{ready}no upgrade of any is recorded"
    yield Text(f"{count(len(status.nodes), 'node')}: {', '.join(counts) or none}{left}", "bold")
    for wave in status.waves:
        if wave.done + wave.flying + wave.failed > 0 and wave.done < wave.total:
            yield Text(_wave_words(wave))


def _stacks(stacks: Sequence[StackSeen]) -> Iterator[RenderableType]:
    """Yield how GpuStacks stand, each with the nodes that it names."""
    if not stacks:
        return
    yield ""
    yield Text(count(len(stacks), "stack"), "bold")
    for stack in stacks:
        state = (stack.state or "not looked at", _STACKS.get(stack.state, ""))
        head = Text.assemble((stack.name, "bold cyan"), "  ", state)
        message = stack.message if stack.state == _REFUSED else brief(stack.message)  # with every error
        parts = [stack.progress, stack.driver, message] if stack.state else ["no controller has looked at it yet"]
        if stack.is_outdated and stack.state:
            parts.append("its declaration has changed since")
        yield hanging(_INDENT, Text.assemble(head, f"  {'  '.join(part for part in parts if part)}"))
        if stack.exposure:
            yield hanging(2 * _INDENT, Text(brief(stack.exposure), "yellow"))
        told = stack.told
        for message, nodes in told[:REASONS_SHOWN]:
            yield hanging(2 * _INDENT, Text.assemble((f"{names(in_series(nodes))}: ", "cyan"), brief(message)))
        if rest := sum(len(nodes) for _message, nodes in told[REASONS_SHOWN:]):
            yield hanging(2 * _INDENT, Text(f"and {count(rest, 'node')} more (`kubectl describe gpustack`)", "dim"))


def _wave_words(wave: WaveStatus) -> str:
    more = [f"{number} {what}" for number, what in ((wave.flying, "out of service"), (wave.failed, "failed")) if number]
    return ", ".join([f"{wave.title}: {wave.done} of {wave.total} done", *more])


def _measured(status: FleetStatus) -> str:
    return f"measured on {count(status.measured, 'node')}"


def _who(seen: Seen, invocation: Invocation) -> Iterator[RenderableType]:
    yield Text(seen.place, "dim")
    tenant, standing = seen.tenant, seen.standing
    if tenant is not None and tenant.is_at_work:
        since = "" if tenant.since is None else f", since {_moment(tenant.since, seen.time)}"
        prepares = "" if standing is not None else "; it prepares, or has published nothing yet"
        yield Text.assemble((tenant.holder, "bold"), f" is at work{since}{prepares}")
    elif tenant is not None:
        heard = _since(tenant.heard, seen.time)
        yield Text.assemble((tenant.holder, "bold"), (f" has the lease and was not heard of{heard}", "yellow"))
    elif seen.is_lease_known:
        yield Text("nobody is at work")
    if seen.controller is not None:
        yield _leader(seen.controller, seen.time)
    if seen.is_abandoned:
        yield Text("no controller leads: stacks are as the last one has left them", "yellow")
    if seen.pause is not None:
        yield hanging(Text("paused ", "bold yellow"), Text(f"{seen.pause}; {invocation.complete(RESUME, ())}"))
    if standing is not None and standing.stop:
        yield hanging(Text("stopped: ", "bold red"), Text(brief(standing.stop)))


def _leader(controller: Tenant, now: datetime) -> Text:
    """Return whether a controller brings nodes to their GpuStacks."""
    if controller.is_at_work:
        return Text.assemble((controller.holder, "bold"), f" is the leading controller{_since(controller.since, now)}")
    gone = f" was the leading controller, and was not heard of{_since(controller.heard, now)}"
    return Text.assemble((controller.holder, "bold"), (gone, "yellow"))


def _block(
    situation: Situation, nodes: Sequence[NodeStatus], now: datetime, invocation: Invocation
) -> Iterator[RenderableType]:
    head = Text.assemble((situation.title, _style(situation)), (f"  {count(len(nodes), 'node')}: ", "dim"))
    yield hanging(head, Text(situation.means, "dim"))
    groups = _by_reason(nodes)
    for reason, alike in groups[:REASONS_SHOWN]:
        times = _times(alike, now)
        line = Text.assemble(
            (names(in_series([node.name for node in alike])), "bold cyan"), f"  {times}" if times else ""
        )
        yield hanging(_INDENT, line)
        if reason:
            yield hanging(2 * _INDENT, Text(brief(reason)))
    if rest := groups[REASONS_SHOWN:]:
        others = sum(len(alike) for _, alike in rest)
        yield hanging(_INDENT, Text(f"and {count(others, 'node')} for other reasons (`--json` has them all)", "dim"))
    if situation not in (DONE, IDLE):
        yield hanging(_INDENT, Text.assemble(("next: ", "green"), situation.follows))
    if situation.todo:
        is_whole = any(node.domain for node in nodes)
        todo = invocation.complete(situation.todo, [node.name for node in nodes], is_whole=is_whole)
        yield hanging(_INDENT, Text.assemble(("do: ", "bold green"), todo))


def _by_reason(nodes: Sequence[NodeStatus]) -> list[tuple[str, list[NodeStatus]]]:
    """Return the nodes that say the same, the most first; a node's own name in its reason makes no difference."""
    groups: dict[str, list[NodeStatus]] = defaultdict(list)
    for node in nodes:
        groups[_without_name(node)].append(node)
    ranked = sorted(groups.items(), key=lambda entry: -len(entry[1]))
    return [(alike[0].reason if len(alike) == 1 else reason, alike) for reason, alike in ranked]


def _without_name(node: NodeStatus) -> str:
    if node.name not in node.reason:
        return node.reason
    return "".join("NODE" if word == node.name else word for word in _WORDS.split(node.reason))


def _times(nodes: Sequence[NodeStatus], now: datetime) -> str:
    """Return how long the nodes are in their state, and out of service, and what is left."""
    parts = []
    if since := [(now - node.since).total_seconds() for node in nodes if node.since is not None]:
        parts.append(f"for {_range(since)}")
    flying = [
        node.record
        for node in nodes
        if node.record is not None and node.record.is_out and node.situation not in _BEFORE
    ]
    if flying:
        parts.append(f"out of service for {_range([(now - each.began).total_seconds() for each in flying])}")
    was_out = [_was_out(node) for node in nodes if node.record is None or not node.record.kind.is_in_place]
    if nodes[0].situation in _BACK and was_out:
        parts.append(f"was out of service for {_range(was_out)}")
    if left := [node.left_s for node in nodes if node.left_s is not None]:
        parts.append(f"about {_range(left)} left")
    return ", ".join(parts)


_BEFORE: Final = (WAITING, NOT_BEGUN)
_BACK: Final = (DONE, RETURNED, PUT_BACK)


def _was_out(node: NodeStatus) -> float:
    return 0.0 if node.record is None else (node.record.since - node.record.began).total_seconds()


def _range(seconds: Sequence[float]) -> str:
    least, most = age(min(seconds)), age(max(seconds))
    return least if least == most else f"{least} to {most}"


def _moment(at: datetime, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({age((now - at).total_seconds())})"


def _since(at: datetime | None, now: datetime) -> str:
    return "" if at is None else f" since {_moment(at, now)}"


def changes_of(record: Record) -> Iterator[tuple[str, str]]:
    """Yield what a record's change is from and to, and the last upgrade before one that kept the driver."""
    if record.interface is not None and record.former_interface is not None:
        yield "interface", f"{record.former_interface.value} → {record.interface.value}"
    if record.kind is ChangeKind.DRIVER or record.before_upgrade not in {"", record.target}:
        yield "upgrade", " → ".join(version for version in (record.before_upgrade, record.target) if version) or "none"


def _style(situation: Situation) -> str:
    if situation.needs_somebody:
        return "bold red"
    if situation is DONE:
        return "bold green"
    return "bold yellow" if situation in AT_WORK else "bold"
