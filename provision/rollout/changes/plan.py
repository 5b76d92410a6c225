"""Sorts nodes for `rollback` and `remove`: where each goes, which stay as they are or are refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from provision.apply.model import Failure, NodeResult, Status
from provision.apply.removal import Part
from provision.declaration.spec.model import Rollout
from provision.rollout.changes.removing import Removing
from provision.rollout.decision import undoing
from provision.rollout.decision.census import in_order
from provision.rollout.decision.order.membership import with_waves
from provision.rollout.decision.order.together import (
    Member,
    Refusal,
    domains_of,
    refusals,
    serves_with,
    why_unlabelled,
    with_domains,
)
from provision.rollout.decision.policy import drain_policy, strictest
from provision.rollout.decision.prepare import Prepared
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import ChangeKind, Origin, Phase
from provision.rollout.steps.way_back import is_back, loaded_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from provision.apply.removal import NodeRemoval
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Domains, StackSpec
    from provision.rollout.decision.policy import DrainPolicy
    from provision.rollout.model import NodeView, Record

NO_DRIVER: Final = ""  # as a target
_NO_WAY_BACK: Final = (
    "there is nothing to go back to: no driver change was swapped in on it, or what leads back is no longer whole"
)
_OTHERWISE: Final = "declare the driver that all of its domain shall have, and `grapnel apply`"
_ENDED: Final = ("done", "returned")


class DriverVerb(StrEnum):
    """What the driver program of a node is told, beside a removal."""

    BACK = "back"

    @property
    def command(self) -> str:
        """The command of grapnel that does it."""
        return "grapnel rollback"

    @property
    def status(self) -> Status:
        """What becomes of a node with which it went well."""
        return Status.RETURNED


AnyVerb = DriverVerb | Removing  # `Removing` takes parts away, of which the driver may be one


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far a verb goes. ``undoes_upgrade``: no nodes were named, it is those of the last upgrade.

    ``groups`` are the inventory's, by node. ``further``: nodes that have returned already go one driver further back.
    ``unnamed`` are the nodes of the fleet that were left out, of which some may be in the domains of those that were
    not. ``wanted_by`` says of nodes that are to be left with their former driver, where a controller would bring the
    declared one again, who wants that.
    """

    undoes_upgrade: bool = False
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    in_waves: bool = False
    further: bool = False
    unnamed: Mapping[str, NodeView | NodeProblem] = field(default_factory=dict)
    wanted_by: Mapping[str, str] = field(default_factory=dict)


EVERY_NODE: Final = Extent()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbPlan:
    """What a verb comes to: the nodes that go through the rollout, and the results of those that do not.

    ``targets`` are the versions afterwards, ``undone`` the changes of drivers that a way back leads away from,
    ``foreseen`` what is changed on each node, as far as nodes were asked.
    """

    verb: AnyVerb
    prepared: Prepared
    targets: Mapping[str, str] = field(default_factory=dict)
    undone: Mapping[str, str] = field(default_factory=dict)
    settled: Mapping[str, NodeResult] = field(default_factory=dict)
    foreseen: Mapping[str, NodeRemoval | Failure] = field(default_factory=dict)


def plan_verb(
    verb: AnyVerb,
    answers: Mapping[str, NodeFacts | Failure],
    stacks: Mapping[str, StackSpec],
    views: Mapping[str, NodeView | NodeProblem],
    extent: Extent = EVERY_NODE,
) -> VerbPlan:
    """Sort the nodes of a verb; the three mappings have the same nodes. Pure."""
    states: list[NodeState] = []
    settled: dict[str, NodeResult] = {}
    for name, answer in answers.items():
        state = _stays(verb, stacks[name], views[name], extent) or _state(verb, answer, stacks[name], views[name])
        if isinstance(state, _Staying):
            settled[name] = state.result
            states.append(state.state)
        elif isinstance(state, NodeResult):
            settled[name] = state
        else:
            state = _wanted(state, stacks[name], extent)
            states.append(state)
            if state.obstacle:
                settled[name] = NodeResult(name, *_refused(answer, state.obstacle))
    shared = next((stack.rollout for stack in stacks.values()), Rollout())  # what says where nodes belong
    states = with_domains(states, shared.domains, extent.groups)
    states = _as_one(verb, states, settled, shared.domains, answers=answers, views=views, extent=extent)
    declared = strictest([stacks[state.name].rollout for state in states], len(states))
    policy = replace(declared, calendar=None)  # whoever goes back does not wait for a window
    if isinstance(verb, Removing):  # a node on which it fails says nothing of the others
        policy = replace(policy, max_failures=len(states))
    if extent.in_waves:
        states = with_waves(states, shared.waves, extent.groups)
    else:
        policy = replace(policy, waves=())
    flying = [state.name for state in states if state.is_in_flight]
    rollout = tuple(dict.fromkeys((*flying, *(state.name for state in in_order(states)))))
    prepared = Prepared(
        states=tuple(states),
        rollout=tuple(name for name in rollout if name not in settled),
        policy=policy,
    )
    return VerbPlan(
        verb=verb,
        prepared=prepared,
        targets={state.name: _version_after(state) for state in states},
        undone={name: answer.driver.to_undo for name, answer in answers.items() if not isinstance(answer, Failure)},
        settled=settled,
        foreseen=verb.removals if isinstance(verb, Removing) else {},
    )


def _as_one(
    verb: AnyVerb,
    states: list[NodeState],
    settled: dict[str, NodeResult],
    domains: Domains | None,
    *,
    answers: Mapping[str, NodeFacts | Failure],
    views: Mapping[str, NodeView | NodeProblem],
    extent: Extent,
) -> list[NodeState]:
    """Return the nodes after those were refused whose domain cannot be changed as one; they are ``settled`` as well.

    Where a part of a domain cannot be reached, what is on its way already goes on as far as its domain lets it.
    """
    if domains is None:
        return states
    members = [_member(state, answers[state.name], settled) for state in states]
    members += _strangers(views, domains, extent, is_named=True) + _strangers(
        extent.unnamed, domains, extent, is_named=False
    )
    found = refusals(members, verb.command)
    if unlabelled := why_unlabelled(domains, [member.domain for member in members]):
        found = {"": Refusal(unlabelled, is_mix=False)}
    after: list[NodeState] = []
    for state in states:
        refusal = found.get(state.domain)
        goes_on = state.is_in_flight and (refusal is None or not refusal.is_mix or _goes_back_already(state))
        if refusal is None or state.name in settled or goes_on:
            after.append(state)
            continue
        settled[state.name] = NodeResult(state.name, Status.REFUSED, failure=Failure(Status.REFUSED, refusal.reason))
        after.append(replace(state, obstacle=refusal.reason))
    return after


def _member(state: NodeState, answer: NodeFacts | Failure, settled: Mapping[str, NodeResult]) -> Member:
    """Return what a node is to its domain; one that stays has the driver that runs, or that it was left with."""
    result = settled.get(state.name)
    if result is not None and not state.obstacle:
        loaded = "" if isinstance(answer, Failure) else loaded_version(answer)
        is_unknown = isinstance(answer, Failure) and state.record is None
        obstacle = answer.message if is_unknown and isinstance(answer, Failure) else ""
        return Member(name=state.name, domain=state.domain, after=loaded or state.target, obstacle=obstacle)
    obstacle = f"{state.obstacle}; {_OTHERWISE}" if state.obstacle == _NO_WAY_BACK else state.obstacle
    return Member(
        name=state.name, domain=state.domain, after=_version_after(state), goes=not state.obstacle, obstacle=obstacle
    )


def _strangers(
    views: Mapping[str, NodeView | NodeProblem], domains: Domains, extent: Extent, *, is_named: bool
) -> list[Member]:
    """Return nodes of which only their place is known: not in the cluster, or not named."""
    seen = [view for view in views.values() if isinstance(view, NodeProblem) or not is_named]
    return [
        Member(
            name=view.name,
            domain=domain,
            after=None if isinstance(view, NodeProblem) else serves_with(view.record),
            obstacle=view.message if isinstance(view, NodeProblem) else "",
            is_named=is_named,
        )
        for view, domain in zip(seen, domains_of(seen, domains, extent.groups), strict=True)
    ]


def _goes_back_already(state: NodeState) -> bool:
    return state.record is not None and state.record.is_returning


def _version_after(state: NodeState) -> str:
    record = state.record
    is_returning = record is not None and record.is_returning and not record.kind.is_in_place and state.is_in_flight
    return record.origin if record is not None and is_returning else state.target


def _refused(answer: NodeFacts | Failure, obstacle: str) -> tuple[Status, int, int, Failure]:
    failure = answer if isinstance(answer, Failure) else Failure(Status.REFUSED, obstacle)
    return failure.status, 0, 0, failure


@dataclass(frozen=True, slots=True)
class _Staying:
    """A node that stays as it is, and counts among the others: in waves, and in what may be unavailable."""

    state: NodeState
    result: NodeResult


def _stays(verb: AnyVerb, stack: StackSpec, view: NodeView | NodeProblem, extent: Extent) -> _Staying | None:
    """Return a node that has nothing to undo, or has done it already; None where the verb is about it."""
    if verb is not DriverVerb.BACK or isinstance(view, NodeProblem):
        return None
    record, part = view.record, undoing.part_of(stack.driver, view.record)
    has = "" if record is None else record.origin if record.phase is Phase.RETURNED else record.target
    if part is undoing.Part.RETURNED and not extent.further:
        result = NodeResult(view.name, Status.RETURNED, note=f"had {has or 'no driver'} again before")
    elif part is undoing.Part.NONE and extent.undoes_upgrade:
        result = NodeResult(view.name, Status.UNCHANGED)
    else:
        return None
    drain = drain_policy(stack.rollout, stack.scheduler)
    state = NodeState(view=view, target=has, drain=drain, is_as_declared=True, may_return=False)
    return _Staying(state, result)


def _state(
    verb: AnyVerb, answer: NodeFacts | Failure, stack: StackSpec, view: NodeView | NodeProblem
) -> NodeState | NodeResult:
    if isinstance(view, NodeProblem):
        message = f"it has to be drained first, but cannot be: {view.message} ({view.hint})"
        return NodeResult(view.name, Status.REFUSED, failure=Failure(Status.REFUSED, message))
    drain = drain_policy(stack.rollout, stack.scheduler)
    if isinstance(answer, Failure):
        return NodeState(view=view, target=NO_DRIVER, drain=drain, obstacle=answer.message, may_return=False)
    if verb is DriverVerb.BACK and view.record is not None and _is_returning(view.record, answer):
        return _returning(view, view.record, answer, drain)
    if verb is DriverVerb.BACK and view.record is not None and _is_still_there(view.record, answer):
        return replace(_returning(view, view.record, answer, drain), target=view.record.origin, is_as_declared=True)
    obstacle = verb.obstacle(view.name) if isinstance(verb, Removing) else None
    if obstacle is not None:
        return NodeState(view=view, target=NO_DRIVER, drain=drain, obstacle=obstacle.message, may_return=False)
    is_done = _is_done(verb, view.name, answer, view.record)
    target, no_way = _target(verb, answer, view.record if is_done else None)
    state = NodeState(
        view=view,
        target=target,
        origin=_origin(answer, view.record if is_done else None),
        drain=drain,
        is_disruptive=not is_done,
        is_as_declared=is_done,
        obstacle=no_way,
        origin_change=answer.driver.current or "",
        may_return=False,
        is_released=answer.is_released,
        kind=ChangeKind.DRIVER if may_end_without_driver(verb) else ChangeKind.OTHER,
    )
    if isinstance(verb, Removing) and not is_done and not _is_due(verb, view.name, answer):
        return NodeResult(view.name, Status.UNCHANGED)
    return state


def _wanted(state: NodeState, stack: StackSpec, extent: Extent) -> NodeState:
    """Return a node that is left with its former driver afterwards, where that is asked for."""
    who, record, after = extent.wanted_by.get(state.name, ""), state.record, _version_after(state)
    if not who:
        return state
    known = (stack.driver.version, *(() if record is None else (record.target, record.origin)))
    return replace(state, back_for=who, back_from=next((each for each in known if each and each != after), ""))


def _is_returning(record: Record, facts: NodeFacts) -> bool:
    """Tell whether an apply was already taking the node back, or has brought it back and failed to verify it.

    Going back is then to come to the end of that: another `back` would lead one driver further.
    """
    if not record.is_returning or record.phase.is_in_service or record.kind.is_in_place or _leads_before(record, facts):
        return False
    return record.phase is not Phase.FAILED or is_back(facts, Origin(record.origin, record.origin_change))


def _is_still_there(record: Record, facts: NodeFacts) -> bool:
    """Tell whether the node is out of service for a driver change that it has not begun, or that it has undone itself.

    What it runs is what it is to have: a `back` would undo an earlier change. A `back` that was cut short itself is
    told by where it leads, and so is that of the upgrade before a change that keeps the driver.
    """
    if record.phase.is_in_service or record.kind.is_in_place or facts.driver.back == record.target:
        return False
    return not _leads_before(record, facts) and is_back(facts, Origin(record.origin, record.origin_change))


def _leads_before(record: Record, facts: NodeFacts) -> bool:
    """Tell whether what the node goes back to is what it had before an upgrade that a later change has kept."""
    return record.before_upgrade != record.origin and facts.driver.back == record.before_upgrade


def _returning(view: NodeView, record: Record, facts: NodeFacts, drain: DrainPolicy) -> NodeState:
    has_failed = record.phase is Phase.FAILED
    return NodeState(
        view=view,
        target=record.origin if has_failed else record.target,
        origin=record.origin,
        drain=drain,
        is_as_declared=has_failed,
        origin_change=facts.driver.current or "",
        may_return=False,
    )


def _target(verb: AnyVerb, facts: NodeFacts, record: Record | None) -> tuple[str, str]:
    """Return the version afterwards, and why there is no way to it; ``record`` is of what this verb has done before."""
    if isinstance(verb, Removing) and not (Part.DRIVER in verb.parts and _has_anything(facts)):
        return loaded_version(facts), ""  # which is not ours to take away, or shall stay
    if isinstance(verb, Removing):
        return NO_DRIVER, ""
    if record is not None:
        return record.target, ""
    return (NO_DRIVER, _NO_WAY_BACK) if facts.driver.back is None else (facts.driver.back, "")


def _origin(facts: NodeFacts, record: Record | None) -> str:
    return loaded_version(facts) if record is None else record.origin


def _is_done(verb: AnyVerb, node: str, facts: NodeFacts, record: Record | None) -> bool:
    """Tell whether the driver was changed by a command that was cut short before the node was in service again.

    Without this, a second `back` would return to the driver before the one that was asked for.
    """
    if record is None or record.phase.is_in_service:
        return False
    if isinstance(verb, Removing):
        return not _is_due(verb, node, facts)
    run = facts.driver.run
    was_back = run is not None and run.verb == verb.value and run.state in _ENDED
    return was_back and loaded_version(facts) == record.target


def may_end_without_driver(verb: AnyVerb) -> bool:
    """Tell whether nodes may be without a driver afterwards."""
    return not isinstance(verb, Removing) or Part.DRIVER in verb.parts


def _is_due(verb: Removing, node: str, facts: NodeFacts) -> bool:
    """Tell whether there is something on a node to take away."""
    return verb.is_due(node) or (Part.DRIVER in verb.parts and _has_anything(facts))


def _has_anything(facts: NodeFacts) -> bool:
    return facts.driver.managed or facts.installed_digest("driver") is not None
