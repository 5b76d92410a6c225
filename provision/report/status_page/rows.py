"""Says what a page is sent of a fleet, as small values that compare: what is equal is not sent again. Pure.

Times are whole seconds since 1970. Text from nodes is made printable here; the page shows it as text, never as HTML.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from provision.base.printable import printable
from provision.declaration.spec.text.excerpt import few
from provision.report.runs.remedies import BARE
from provision.report.status_page.machines import Machines, machines_document, machines_of, seconds
from provision.rollout.interface.pause import RESUME
from provision.rollout.status import situations
from provision.rollout.status.advice import led
from provision.rollout.status.situations import SITUATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.report.runs.remedies import Invocation
    from provision.rollout.status.model import FleetStatus, NodeStatus, Seen, StackSeen
    from provision.rollout.status.situations import Situation
    from provision.rollout.status.words import Last

_STACK_TONES: Final = {  # as in `Look`
    "AsDeclared": "ok",
    "Changing": "work",
    "Waiting": "wait",
    "Degraded": "bad",
    "Refused": "bad",
}
STEADY_S: Final = 20  # an estimate that moves by less is not sent again


@dataclass(frozen=True, slots=True)
class Row:
    """What the grid shows of one node. ``ends`` is when it is probably done, None where that is not known."""

    name: str
    state: str
    wave: str
    domain: str
    since: int | None
    began: int | None
    reason: str
    ends: int | None

    def steady(self, before: Row | None) -> Row:
        """Return the row with the estimate ``before``, where that is still about right."""
        if before is None or before.ends == self.ends:
            return self
        return replace(self, ends=steady(before.ends, self.ends))


@dataclass(frozen=True, slots=True)
class Notice:
    """One line above everything else; ``tone`` as in `Look`."""

    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class StackRow:
    """How a GpuStack stands; ``troubles`` are nodes with what is wrong with them."""

    name: str
    state: str
    tone: str
    progress: str
    driver: str
    message: str
    troubles: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What is said of the fleet as a whole."""

    place: str
    engine: str
    engine_since: int | None
    is_at_work: bool
    notices: tuple[Notice, ...]
    ends: int | None
    measured: int
    waves: tuple[tuple[str, int, int, int, int], ...]
    unnamed: tuple[tuple[str, int], ...]
    stacks: tuple[StackRow, ...] = ()
    machines: Machines = field(default_factory=Machines)


def row_of(node: NodeStatus, seen: Seen) -> Row:
    """Return the row of a node."""
    record = node.record
    is_out = record is not None and not record.phase.is_over
    return Row(
        name=printable(node.name, limit=253),
        state=node.situation.key,
        wave=printable(node.wave),
        domain=printable(node.domain),
        since=seconds(node.since),
        began=seconds(record.began) if record is not None and is_out else None,
        reason=printable(node.reason),
        ends=None if node.left_s is None else round(seen.time.timestamp() + node.left_s),
    )


def head_of(
    status: FleetStatus, invocation: Invocation = BARE, last: Mapping[str, Last] = MappingProxyType({})
) -> Head:
    """Return what stands above the nodes; ``last`` are the last runs of nodes."""
    seen = status.seen
    tenant = seen.tenant
    return Head(
        place=printable(seen.place),
        engine="" if tenant is None else printable(tenant.holder),
        engine_since=None if tenant is None else seconds(tenant.since),
        is_at_work=status.is_at_work,
        notices=tuple(_notices(status, invocation)),
        ends=None if status.left_s is None else round(seen.time.timestamp() + status.left_s),
        measured=status.measured,
        waves=tuple((printable(one.title), one.total, one.done, one.flying, one.failed) for one in status.waves),
        unnamed=tuple((printable(reason), count) for reason, count in status.unnamed),
        stacks=tuple(_stack_row(stack) for stack in seen.stacks),
        machines=machines_of(status.nodes, last),
    )


def _stack_row(stack: StackSeen) -> StackRow:
    message = stack.message if stack.state else "no controller has looked at it yet"
    return StackRow(
        name=printable(stack.name, limit=63),
        state=printable(stack.state, limit=63) or "not looked at",
        tone=_STACK_TONES.get(stack.state, "off"),
        progress=stack.progress,
        driver=printable(stack.driver, limit=63),
        message=f"{printable(message)}; its declaration has changed since" if stack.is_outdated else printable(message),
        troubles=tuple((printable(few(nodes)), printable(message)) for message, nodes in stack.told),
    )


def steady_head(before: Head | None, after: Head) -> Head:
    """Return ``after`` with the estimate of ``before``, where that is still about right."""
    return after if before is None else replace(after, ends=steady(before.ends, after.ends))


def steady(before: int | None, after: int | None) -> int | None:
    """Return the estimate that was told before while the new one differs little from it."""
    if before is None or after is None:
        return after
    return before if abs(after - before) < STEADY_S else after


def states_document(invocation: Invocation = BARE, *, is_led: bool = False) -> dict[str, dict[str, Any]]:
    """Return every state by its key, in the order in which they are shown: what needs somebody comes first.

    ``is_led``: a controller leads. In ``todo`` the page puts names of nodes for ``{names}``; ``todoForMany`` is for
    nodes that are not to be named.
    """
    return {
        each.key: {
            "title": each.title,
            "means": each.means,
            "follows": each.follows,
            "todo": printable(invocation.template(each.todo, "{names}", "{names}")),
            "todoForMany": printable(invocation.template(each.todo, "NODE", "")),
            "needsSomebody": each.needs_somebody,
            "tone": look_of(each).tone,
            "mark": look_of(each).mark,
        }
        for each in (map(led, SITUATIONS) if is_led else SITUATIONS)
    }


def head_document(head: Head) -> dict[str, Any]:
    """Return the head as JSON."""
    return {
        "place": head.place,
        "engine": head.engine,
        "engineSince": head.engine_since,
        "atWork": head.is_at_work,
        "notices": [[notice.tone, notice.text] for notice in head.notices],
        "ends": head.ends,
        "measured": head.measured,
        "waves": [list(wave) for wave in head.waves],
        "unnamed": [list(entry) for entry in head.unnamed],
        "stacks": [
            [each.name, each.state, each.tone, each.progress, each.driver, each.message, each.troubles]
            for each in head.stacks
        ],
        "machines": machines_document(head.machines),
    }


def _notices(status: FleetStatus, invocation: Invocation) -> list[Notice]:
    seen = status.seen
    found = []
    if seen.standing is not None and seen.standing.stop:
        found.append(Notice("bad", f"The rollout has stopped: {printable(seen.standing.stop)}"))
    if seen.pause is not None:
        resume = printable(invocation.complete(RESUME, ()))
        found.append(Notice("warn", f"Paused {printable(str(seen.pause))}; {resume}"))
    tenant = seen.tenant
    if tenant is not None and not tenant.is_at_work:
        found.append(Notice("warn", f"{printable(tenant.holder)} has the lease, and has not been heard of for a while"))
    elif tenant is not None and seen.standing is None:
        found.append(Notice("wait", "The engine prepares, or has not published anything yet"))
    found += [Notice("warn", printable(complaint)) for complaint in seen.complaints]
    return found


# Says how each state looks: a tone, which becomes a colour and a shape, and a mark, so that no colour is needed.
# States that have no mark here get one from their title, so that a state that is added needs no change of the page.

_MARKS: Final = {
    "done": "✓",
    "waiting": "·",
    "idle": "-",
    "cordoned": "/",
    "not-ready": "!",
    "unclear": "?",
    "not-begun": "‖",
    "resume": "U",  # uncordoned next; R is release
    "wait-for-jobs": "J",
    "rollback": "B",
    "returned": "↩",
}


@dataclass(frozen=True, slots=True)
class Look:
    """``tone`` is one of ok, wait, work, warn, bad, off; ``mark`` one character."""

    tone: str
    mark: str


def look_of(situation: Situation) -> Look:
    """Return how a state looks."""
    return Look(_tone(situation), _mark(situation))


def _tone(situation: Situation) -> str:
    if situation is situations.DONE:
        return "ok"
    if situation.key.startswith(("failed", "returned")):
        return "bad"
    if situation.needs_somebody:
        return "warn"
    if situation in situations.AT_WORK:
        return "work"
    return "off" if situation in (situations.IDLE, situations.CORDONED) else "wait"


def _mark(situation: Situation) -> str:
    key = situation.key
    if key in _MARKS:
        return _MARKS[key]
    if key.startswith("failed"):
        return "✕"
    if key.startswith("left-in-"):
        return _MARKS.get(key.removeprefix("left-in-"), key.removeprefix("left-in-")[0].upper())
    return situation.title[0].upper()
