"""Decides what happens next in the fleet, and why each node that waits does. Pure.

Nodes in flight come first and are always brought to their end; one that is gone is not waited for for ever. Another
one begins only while nothing has failed, a slot is free, enough of the fleet is in service, and what was changed before
has stayed healthy for as long as it has to. Where nothing can move and nothing is under way, that is the end, with its
reason, so that no wait is unexplained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.rollout.decision.admission import Admission
from provision.rollout.decision.advance import advance, begin, give_up
from provision.rollout.decision.census import take_census
from provision.rollout.decision.hours import opening_hours, outside_hours
from provision.rollout.decision.order.domains import Domains
from provision.rollout.decision.order.waves import patience_of, whose_turn
from provision.rollout.decision.snapshot import AT_ONCE, FOR_EVER, Decision, Write
from provision.rollout.decision.turning import turn_round
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from provision.rollout.decision.advance import Move
    from provision.rollout.decision.census import Census
    from provision.rollout.decision.hours import OpeningHours
    from provision.rollout.decision.order.domains import Domain
    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import Action, NodeState, Snapshot
    from provision.rollout.model import Record


def decide(snapshot: Snapshot, policy: Policy, now: datetime) -> Decision:
    """Return the actions of this moment; the same snapshot always gives the same ones."""
    census = take_census(snapshot, policy.soak, now)
    domains, hours = Domains(snapshot.nodes, snapshot.domains), opening_hours(census.nodes, policy, now)
    actions, waiting = _go_on(census.flying, now, snapshot.began, domains, hours)
    left = (*census.unable, *census.failed, *census.replaced)
    waiting.update((node.name, node.obstacle) for node in left if node.obstacle)
    unwritten = [node for node in snapshot.nodes if node.is_unwritten and not node.is_in_flight]
    actions += [_write_again(node, node.record) for node in unwritten if node.record is not None]
    turn = whose_turn(census, snapshot, policy, now)
    stop = why_broken(census, actions, policy, turn.canary)
    closed = _why_closed(hours, snapshot, policy)
    admission = Admission(census, policy, now, turn, closed)
    pause = None if stop else snapshot.pause
    if stop or pause or unwritten:
        reason = pause.as_reason if pause else f"stopped: {stop}" if stop else _why_first(unwritten[0])
        waiting.update(dict.fromkeys((node.name for node in census.waiting), reason))
    else:
        actions += _begin(census.waiting, admission, now, waiting, domains)
    is_paused = pause is not None and bool(census.waiting)  # what waits for a person to resume is not over
    is_still = not actions and not is_paused and not census.flying
    stop = stop or (admission.standstill(snapshot.still_since) if is_still else None)
    is_over = is_still and (bool(stop) or not census.waiting)
    return Decision(
        actions=tuple(actions),
        waiting=waiting,
        stop=stop,
        is_over=is_over,
        is_still=is_still,
        passed=max(snapshot.passed, turn.wave),
        given_up=tuple(node.name for node in census.flying if _is_gone(node, now)),
        is_closed=bool(closed[0]) or turn.gate is not None,
    )


def _why_first(node: NodeState) -> str:
    """Return why nothing begins before a record is written again: its node may be out of service once more then."""
    return f"waits for {node.name}, which was registered again: its record is written first"


def _why_closed(hours: OpeningHours, snapshot: Snapshot, policy: Policy) -> tuple[str, int]:
    """Return why no node at all begins now, and how long that is borne."""
    if hours.closed:
        return hours.closed, FOR_EVER if policy.waits else AT_ONCE
    gate = next((each for each in snapshot.gates if each.holds_nodes and not each.is_open), None)
    if gate is None:
        return "", AT_ONCE
    return gate.as_reason, patience_of(gate) if policy.waits else AT_ONCE


def _begin(
    nodes: Sequence[NodeState], admission: Admission, now: datetime, waiting: dict[str, str], domains: Domains
) -> list[Action]:
    """Return what begins; the others get their reason in ``waiting``."""
    actions: list[Action] = []
    decided: set[str] = set()
    for node in nodes:
        if node.domain in decided:
            continue
        domain = domains.of(node) if node.domain else None
        if domain is not None:
            if node is domain.waiting[0]:
                actions += _begin_domain(domain, admission, now, waiting)
                decided.add(node.domain)
        elif reason := admission.why_not(node):
            waiting[node.name] = reason
        else:
            actions.append(begin(node, now))
            admission.take(node)
    return actions


def _begin_domain(domain: Domain, admission: Admission, now: datetime, waiting: dict[str, str]) -> list[Action]:
    """Return what begins of a domain when the turn of its first node has come: all of it or nothing."""
    reason = admission.why_not_together(domain)
    if reason:
        for node in domain.waiting:
            waiting[node.name] = reason
        return []
    for node in domain.waiting:
        admission.take(node)
    return [begin(node, now) for node in domain.waiting]


def _go_on(
    flying: Sequence[NodeState], now: datetime, began: datetime, domains: Domains, hours: OpeningHours
) -> tuple[list[Action], dict[str, str]]:
    """Return what is done on nodes that are out of service, and what keeps them in their phases."""
    actions: list[Action] = []
    waiting: dict[str, str] = {}
    for node in flying:
        if node.is_unwritten and node.record is not None:  # also while a step runs: until then nothing remembers it
            actions.append(_write_again(node, node.record))
            continue
        if node.is_busy or node.record is None:
            continue
        domain = domains.of(node)
        action, held = _move(node, node.record, now, began, domain)
        if not hours.is_open:
            action, held = outside_hours(node, node.record, action, held, hours.closed, domain)
        if action is not None:
            actions.append(action)
        if held:
            waiting[node.name] = held
    return actions, waiting


def _write_again(node: NodeState, record: Record) -> Write:
    is_out = record.phase is not Phase.CORDON and record.is_out
    return Write(node.name, record, cordoned=True if is_out else None)


def _move(node: NodeState, record: Record, now: datetime, began: datetime, domain: Domain | None) -> Move:
    if node.is_missing:
        return None, node.obstacle
    if node.obstacle and not record.is_returning:  # the way back needs no plan
        return turn_round(node, record, now, domain) or give_up(node, record, now), ""
    return advance(node, record, now, began, domain)


def _is_gone(node: NodeState, now: datetime) -> bool:
    """Tell whether a node has been missing for so long that it is not waited for any more."""
    if not node.is_missing or node.is_busy or node.lost_since is None:
        return False
    return now - node.lost_since >= node.lost_timeout


_NAMED: Final = 3


def why_broken(census: Census, actions: Sequence[Action], policy: Policy, canary: int | None) -> str | None:
    """Return why no further node begins: more nodes have failed than may, or do so now, or one of the canary has.

    ``canary`` is the index of its wave, None where there is none. Counted are failures of this process, as what failed
    before is tried again first, and of those the ones that the change may have caused. A node on its way back counts
    from the beginning of that.
    """
    failed = _failed(census, actions)
    if not failed:
        return None
    first = next((node for node, _record in failed if canary is not None and node.wave == canary), None)
    if first is not None:
        where = next(_where(node, record) for node, record in failed if node is first)
        return f"{where}, in {policy.waves[canary or 0].title}: no node of the first wave may fail"
    if len(failed) <= policy.max_failures:
        return None
    named = ", ".join(_where(node, record) for node, record in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    limit = f", and maxFailures is {policy.max_failures}" if policy.max_failures else ""
    return f"{named}{more}{limit}"


def _failed(census: Census, actions: Sequence[Action]) -> list[tuple[NodeState, Record]]:
    known = [*census.failed, *census.returned, *census.flying]
    found = [(node, node.record) for node in known if node.record is not None and node.is_blamed]
    records = {a.node: a.record for a in actions if isinstance(a, Write) and a.record.is_blamed}
    now = [(node, records[node.name]) for node in census.flying if node.name in records and not node.is_blamed]
    return found + now if records else found


def _where(node: NodeState, record: Record) -> str:
    return f"{node.name} failed in {record.failed_in or record.phase}"
