"""Derives the status of a stack from how its nodes stand. Pure: the same input gives the same status."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from provision.base.printable import brief
from provision.controller.stacks.model import Unreadable
from provision.controller.stacks.status import (
    MAX_TROUBLES,
    ConditionType,
    NodeCounts,
    NodeTrouble,
    StackCondition,
    StackState,
    StackStatus,
)
from provision.declaration.spec.text.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from provision.controller.stacks.model import Stack

_LONGEST = 1000  # characters of a reason


class NodeIs(Enum):
    """How a node of a stack stands."""

    AS_DECLARED = "as declared"
    CHANGING = "changing"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Stands:
    """How one node stands, and why it is not as declared; ``is_left``: it waits, and no round is about it now."""

    how: NodeIs
    reason: str = ""
    is_left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TenancyStands:
    """How it stands with quotas, priorities and queues; ``problems`` are what is not as declared, and why."""

    is_known: bool = True
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a status is derived from.

    ``nodes`` are those that the stack owns; of one that is deleted, those that are waited for. ``disputed`` are the
    stacks that select a Node besides it, by Node. ``trouble`` is what went wrong with the stack as a whole,
    ``fingerprint`` what its nodes are brought to. ``tenancy`` is None where nothing is declared of it. ``host`` is the
    Node with the pod of the leading controller where the stack selects it, empty where it does not, None where nobody
    knows which that is.
    """

    nodes: Mapping[str, Stands] = field(default_factory=dict)
    disputed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    trouble: str = ""
    tenancy: TenancyStands | None = None
    fingerprint: str = ""
    host: str | None = None


def status_of(stack: Stack | Unreadable, observed: Observed, former: StackStatus, now: datetime) -> StackStatus:
    """Return the status of a stack; ``former`` is the one that it has, whose times of conditions are kept."""
    if isinstance(stack, Unreadable):
        message = "; ".join(stack.reasons)[:_LONGEST]
        return _Writer(stack.generation, former, now).status(StackState.REFUSED, message, NodeCounts())
    counts = _counts(observed)
    state, message = _state(stack, observed, counts)
    return _Writer(stack.generation, former, now).status(
        state,
        message,
        counts,
        progress=f"{counts.as_declared}/{counts.total}",
        driver=_driver(stack),
        fingerprint=observed.fingerprint,
        troubles=tuple(islice(_troubles(observed), MAX_TROUBLES)),
        warnings="; ".join(stack.warnings)[:_LONGEST],
        tenancy=observed.tenancy,
        host=observed.host,
    )


def without_controller(former: StackStatus, now: datetime) -> StackStatus:
    """Return the status of a stack whose controller was uninstalled: it claims nothing, since no controller looks."""
    state = str(StackState.NO_CONTROLLER)
    message = f"no controller is installed since {now:%Y-%m-%d %H:%M:%S} UTC: how its nodes stand is not known"
    return StackStatus(
        observed_generation=former.observed_generation,
        state=state,
        message=message,
        driver=former.driver,
        conditions=tuple(_unknown(each, state, message, now) for each in former.conditions),
    )


def _unknown(former: StackCondition, reason: str, message: str, now: datetime) -> StackCondition:
    since = former.last_transition_time if former.status == "Unknown" else f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return msgspec.structs.replace(former, status="Unknown", reason=reason, message=message, last_transition_time=since)


def _counts(observed: Observed) -> NodeCounts:
    found = [each.how for each in observed.nodes.values()]
    return NodeCounts(
        total=len(found),
        as_declared=found.count(NodeIs.AS_DECLARED),
        changing=found.count(NodeIs.CHANGING),
        waiting=found.count(NodeIs.WAITING),
        failed=found.count(NodeIs.FAILED),
        claimed_twice=len(observed.disputed),
    )


def _state(stack: Stack, observed: Observed, counts: NodeCounts) -> tuple[StackState, str]:
    if stack.is_going:
        return StackState.GOING, _going(stack, observed)
    if observed.trouble:
        return StackState.DEGRADED, observed.trouble[:_LONGEST]
    failed = [name for name, each in observed.nodes.items() if each.how is NodeIs.FAILED]
    if counts.changing:
        return StackState.CHANGING, _sentence(counts, f"{_nodes(counts.changing)} being changed")
    waiting = [each for each in observed.nodes.values() if each.how is NodeIs.WAITING]
    why = next((each.reason for each in sorted(waiting, key=attrgetter("is_left"))), "")
    waits = f"{_nodes(len(waiting))} waiting: {brief(why)}"
    if waiting and not (failed and all(each.is_left for each in waiting)):
        return StackState.WAITING, _sentence(counts, waits)
    if failed:
        what = f"{few(sorted(failed))} failed: {brief(observed.nodes[failed[0]].reason)}"
        return StackState.DEGRADED, _sentence(counts, f"{what}; {waits}" if waiting else what)
    if counts.claimed_twice:
        return StackState.DEGRADED, _disputed(observed)
    if (tenancy := observed.tenancy) is not None and not tenancy.is_known:
        return StackState.CHANGING, _sentence(counts, "quotas, priorities and queues being looked at")
    if tenancy is not None and tenancy.problems:
        return StackState.DEGRADED, "; ".join(tenancy.problems)[:_LONGEST]
    if not counts.total:
        return StackState.EMPTY, "no Node has the labels of its nodeSelector"
    return StackState.AS_DECLARED, f"{_nodes(counts.total)} as declared"


def _going(stack: Stack, observed: Observed) -> str:
    left = sorted(observed.nodes)
    if not left:
        return "deleted: its nodes stay as they are, and are upgraded by nobody"
    what = f"grapnel is taken off {few(left)} first" if stack.is_removing else f"{few(left)} back in service first"
    why = observed.trouble or next((observed.nodes[name].reason for name in left if observed.nodes[name].reason), "")
    return f"deleted: {what}{f': {brief(why)}' if why else ''}"[:_LONGEST]


def _sentence(counts: NodeCounts, what: str) -> str:
    return f"{counts.as_declared} of {_nodes(counts.total)} as declared, {what}"[:_LONGEST]


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _disputed(observed: Observed) -> str:
    node, others = next(iter(sorted(observed.disputed.items())))
    return f"{_nodes(len(observed.disputed))} claimed by another stack as well, such as {node} by {', '.join(others)}"


def _troubles(observed: Observed) -> Iterator[NodeTrouble]:
    order = {NodeIs.FAILED: 0, NodeIs.CHANGING: 1, NodeIs.WAITING: 2}
    found = [(order[each.how], name, each.reason) for name, each in observed.nodes.items() if each.how in order]
    for _rank, name, reason in sorted(each for each in found if each[2] and not each[0]):
        yield NodeTrouble(node=name, message=reason[:_LONGEST])
    for name, others in sorted(observed.disputed.items()):
        message = f"GpuStack {', '.join(others)} selects it as well: nothing is done until one of them lets it go"
        yield NodeTrouble(node=name, message=message)
    for _rank, name, reason in sorted(each for each in found if each[2] and each[0]):
        yield NodeTrouble(node=name, message=brief(reason))  # of many nodes, or of one that failed and has it whole


def _exposed(host: str) -> str:
    keep = "keep it away by controller.nodeSelector or controller.affinity of the chart"
    return f"the controller runs on {host}, so that root of this node has every node: {keep}"


def _driver(stack: Stack) -> str:
    driver = stack.spec.driver
    return "" if not driver.enabled else (driver.version or str(driver.branch or ""))


@dataclass(frozen=True, slots=True)
class _Writer:
    """Puts a status together, with conditions that keep the time of their last transition."""

    generation: int
    former: StackStatus
    now: datetime

    def status(
        self,
        state: StackState,
        message: str,
        counts: NodeCounts,
        *,
        progress: str = "",
        driver: str = "",
        fingerprint: str = "",
        troubles: tuple[NodeTrouble, ...] = (),
        warnings: str = "",
        tenancy: TenancyStands | None = None,
        host: str | None = None,
    ) -> StackStatus:
        is_accepted = state is not StackState.REFUSED
        is_over = state in (StackState.AS_DECLARED, StackState.EMPTY)
        is_moving = state in (StackState.CHANGING, StackState.WAITING) or (
            state is StackState.GOING and bool(counts.total)
        )
        has_failed = bool(counts.failed or counts.claimed_twice) or state in (StackState.DEGRADED, StackState.REFUSED)
        return StackStatus(
            observed_generation=self.generation,
            state=str(state),
            message=message,
            progress=progress,
            driver=driver,
            fingerprint=fingerprint,
            nodes=counts,
            troubles=troubles,
            conditions=(
                self._condition(
                    ConditionType.ACCEPTED,
                    "Valid" if is_accepted else "Invalid",
                    warnings if is_accepted else message,
                    holds=is_accepted,
                ),
                self._condition(ConditionType.AS_DECLARED, str(state), message, holds=is_over),
                self._condition(ConditionType.PROGRESSING, str(state), message, holds=is_moving),
                self._condition(ConditionType.DEGRADED, str(state), message if has_failed else "", holds=has_failed),
                *self._tenancy(tenancy),
                *self._apart(host),
            ),
        )

    def _tenancy(self, tenancy: TenancyStands | None) -> tuple[StackCondition, ...]:
        if tenancy is None:
            return ()
        holds = tenancy.is_known and not tenancy.problems
        reason = "Applied" if holds else "Problem" if tenancy.problems else "Unknown"
        return (self._condition(ConditionType.TENANCY, reason, "; ".join(tenancy.problems)[:_LONGEST], holds=holds),)

    def _apart(self, host: str | None) -> tuple[StackCondition, ...]:
        if host is None:
            return ()
        reason = "OnNodeOfStack" if host else "OnOtherNode"
        message = _exposed(host) if host else ""
        return (self._condition(ConditionType.CONTROLLER_APART, reason, message, holds=not host),)

    def _condition(self, kind: ConditionType, reason: str, message: str, *, holds: bool) -> StackCondition:
        status = "True" if holds else "False"
        before = next((each for each in self.former.conditions if each.type == kind), None)
        is_kept = before is not None and before.status == status
        since = before.last_transition_time if before is not None and is_kept else f"{self.now:%Y-%m-%dT%H:%M:%SZ}"
        return StackCondition(
            type=str(kind),
            status="True" if holds else "False",
            reason=reason,
            message=message,
            last_transition_time=since,
            observed_generation=self.generation,
        )
