"""Sorts nodes into those that go through the rollout, are changed in place, or are left alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from provision.apply.gate import ENDS_WORK, changes_over, find_obstacle, needs_staging, needs_turn
from provision.apply.model import Assessment, Failure, Status
from provision.declaration.spec.model import Entitlement, GpuInterface, Order, Rollout
from provision.planning.node_plan import Action, Role
from provision.planning.planner.dra import given_by
from provision.rollout.decision.census import in_order
from provision.rollout.decision.order.membership import with_waves
from provision.rollout.decision.order.together import why_apart, with_domains
from provision.rollout.decision.order.zones import with_places
from provision.rollout.decision.policy import Policy, drain_policy, strictest
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.tenancy import TenancyChange
from provision.rollout.model import ChangeKind, Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from provision.apply.supply.kinds import Handing
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import NodePlan
    from provision.rollout.decision.policy import DrainPolicy
    from provision.rollout.interface.gates import GateState
    from provision.rollout.interface.node_marks import MarkChange
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Forecast
    from provision.rollout.model import NodeView, Record

_NOT_OF_DRIVERS: Final = frozenset({ChangeKind.MIG, ChangeKind.INTERFACE, ChangeKind.OTHER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An apply before it begins.

    ``states`` are all nodes that the cluster knows, in the inventory's order; ``rollout`` those that go through the
    rollout, in the order in which they do; ``in_place`` those that are changed where they stand; ``staging`` those of
    the rollout whose driver or engine is staged before the first of them is taken out of service. ``refusals`` are
    nodes that would have to be drained and cannot be, ``runtime_classes`` those that the cluster lacks, ``marks`` how
    labels and taints of Nodes differ, ``tenancy`` how quotas, priorities and queues do. ``builds`` are the modules that
    one node provides for others. ``closed`` is why no node would begin now, with the time when one may,
    ``gates`` what those of the declaration say, ``forecast`` how long it is expected to take.
    """

    states: tuple[NodeState, ...] = ()
    rollout: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    staging: tuple[str, ...] = ()
    refusals: Mapping[str, Failure] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    runtime_classes: tuple[str, ...] = ()
    marks: Mapping[str, MarkChange] = field(default_factory=dict)
    tenancy: TenancyChange = field(default_factory=TenancyChange)
    builds: tuple[Handing, ...] = ()
    closed: str = ""
    gates: tuple[GateState, ...] = ()
    forecast: Forecast | None = None

    @property
    def todo(self) -> tuple[str, ...]:
        """Every node that something is done about, in the order of the phases of an apply."""
        return (*self.in_place, *self.rollout)

    @property
    def leaving(self) -> tuple[str, ...]:
        """Those of the rollout that are taken out of service: not those that serve while they are changed."""
        in_place = {state.name for state in self.states if state.kind.is_in_place}
        return tuple(name for name in self.rollout if name not in in_place)

    @property
    def is_change(self) -> bool:
        """Whether there is anything to do at all."""
        marks = any(each.changes for each in self.marks.values())
        return bool(self.todo or self.runtime_classes or marks or self.tenancy.changes)


def prepare(
    answers: Mapping[str, Assessment | Failure],
    stacks: Mapping[str, StackSpec],
    views: Mapping[str, NodeView | NodeProblem],
    groups: Mapping[str, Sequence[str]],
    unnamed: Mapping[str, NodeView | NodeProblem] = MappingProxyType({}),
    *,
    barred: Collection[str] = frozenset(),
) -> Prepared:
    """Sort the nodes of an apply; ``stacks`` and ``views`` have the same nodes. ``groups`` are the inventory's.

    A node without an answer is as declared: whoever asked the others knows that. Of one that is in flight, that is not
    known. ``unnamed`` are nodes of the fleet that are left out, of which some may be in a domain with one that is not.
    Of those that are ``barred``, one that an earlier rollout left failed counts as failed in this one: it is not tried
    again.
    """
    found = [
        _barred(_state(view, answers.get(name), stacks[name]), is_barred=name in barred)
        for name, view in views.items()
        if not isinstance(view, NodeProblem)
    ]
    shared = stacks[found[0].name].rollout if found else Rollout()  # what says where nodes belong is the same for all
    grouped = _apart_in_place(with_domains(found, shared.domains, groups))
    apart = why_apart(grouped, views, shared.domains, groups, unnamed)
    able = [replace(state, obstacle=apart[state.name]) if state.name in apart else state for state in grouped]
    states = in_their_places(able, shared, groups)
    flying = [state.name for state in states if state.is_in_flight]
    rollout = (*flying, *(state.name for state in in_order(states)))
    refusals = {
        name: Failure(Status.REFUSED, f"it has to be drained first, but cannot be: {view.message} ({view.hint})")
        for name, view in views.items()
        if isinstance(view, NodeProblem) and name in answers and _needs_drain(answers[name])
    } | {name: Failure(Status.REFUSED, reason) for name, reason in apart.items()}
    in_place = tuple(
        name for name, answer in answers.items() if name not in rollout and name not in refusals and _is_changed(answer)
    )
    return Prepared(
        states=tuple(states),
        rollout=rollout,
        in_place=in_place,
        staging=tuple(name for name in rollout if name in answers and _needs_staging(answers[name])),
        refusals=refusals,
        policy=strictest([stacks[state.name].rollout for state in states], len(states)),
    )


def in_their_places(
    found: Sequence[NodeState], shared: Rollout, groups: Mapping[str, Sequence[str]]
) -> list[NodeState]:
    """Return the nodes, each with its zone, rank and wave; a wave by size is spread over zones where the order is."""
    placed = with_places(found, shared, groups)
    if shared.order is Order.SPREAD:
        placed.sort(key=lambda state: state.rank)
    states = {state.name: state for state in with_waves(placed, shared.waves, groups)}
    return [states[state.name] for state in found]


def _apart_in_place(states: Sequence[NodeState]) -> list[NodeState]:
    """Return the nodes, of which those that are changed in place keep no company: their drivers stay as they are.

    Where others of its domain leave service, one goes with them as any other.
    """
    leaving = {state.domain for state in states if _leaves(state)}
    return [
        state
        if not (state.domain and state.kind.is_in_place)
        else replace(state, kind=ChangeKind.OTHER, interface=None)
        if state.domain in leaving
        else replace(state, domain="")
        for state in states
    ]


def _leaves(state: NodeState) -> bool:
    return (state.wants_to_begin or state.is_in_flight) and not state.kind.is_in_place


def only_in_flight(prepared: Prepared, pause: Pause) -> Prepared:
    """Return what is left of an apply that begins during a pause: nodes that are out of service already.

    The others wait, also when it is resumed before the end: what they take was not prepared.
    """
    flying = {state.name for state in prepared.states if state.is_in_flight}
    waiting = Failure(Status.WAITING, pause.as_reason)
    others = {name: waiting for name in prepared.todo if name not in flying}
    return Prepared(
        states=tuple(
            replace(state, obstacle=waiting.message) if state.name in others else state for state in prepared.states
        ),
        rollout=tuple(name for name in prepared.rollout if name in flying),
        staging=tuple(name for name in prepared.staging if name in flying),
        refusals={**prepared.refusals, **others},
        policy=prepared.policy,
    )


def runtime_classes(stacks: Iterable[StackSpec]) -> tuple[str, ...]:
    """Return the handlers that a cluster with nodes of these declarations needs a RuntimeClass of the same name for."""
    handlers = [
        handler
        for stack in stacks
        for handler in stack.runtime.handlers
        if stack.runtime.enabled and stack.plugin.enabled and stack.runtime.entitlement is Entitlement.KUBELET
    ]
    return tuple(dict.fromkeys(handlers))


def _needs_drain(answer: Assessment | Failure) -> bool:
    return isinstance(answer, Assessment) and find_obstacle(answer.plan) is None and needs_turn(answer.plan)


def _needs_staging(answer: Assessment | Failure) -> bool:
    return isinstance(answer, Assessment) and find_obstacle(answer.plan) is None and needs_staging(answer.plan)


def _is_changed(answer: Assessment | Failure) -> bool:
    return isinstance(answer, Assessment) and find_obstacle(answer.plan) is None and not answer.plan.is_empty


def _barred(state: NodeState, *, is_barred: bool) -> NodeState:
    """Return a node that is not tried again, where an earlier rollout left it failed and that was not asked for."""
    record = state.record
    if not is_barred or record is None or not (record.phase.is_over and record.has_failed) or record.retry:
        return state
    return replace(state, has_failed=True)


def _state(view: NodeView, answer: Assessment | Failure | None, stack: StackSpec) -> NodeState:
    target = (stack.driver.version or "") if stack.driver.enabled else ""
    drain = drain_policy(stack.rollout, stack.scheduler)
    if answer is None and view.record is not None and not view.record.phase.is_over:  # it was not asked
        return _unreached(view, view.record, target or view.record.target, drain)
    if answer is None:
        return NodeState(view=view, target=target, drain=drain, is_as_declared=True)
    if isinstance(answer, Failure):
        if view.record is not None and _says_nothing(answer, view.record.phase):
            return _unreached(view, view.record, target or view.record.target, drain)
        return NodeState(view=view, target=target, drain=drain, obstacle=answer.message)
    obstacle, module = find_obstacle(answer.plan), answer.facts.module
    if obstacle is not None and view.record is not None and _is_mid_change(answer, view.record.phase):
        found = _unreached(view, view.record, target or view.record.target, drain)
        return replace(found, is_half_done=True)  # its next step waits for the end of that, and plans it then
    kind = _kind(answer.plan, view.record, stack.plugin.interface)
    former = _former_interface(answer.facts, view.record, stack.plugin.interface)
    return NodeState(
        view=view,
        target=target,
        origin=(module.version or "") if module.loaded else "",
        drain=drain,
        is_disruptive=needs_turn(answer.plan),
        is_as_declared=answer.plan.is_empty,
        obstacle="" if obstacle is None else obstacle.message,
        origin_change=answer.facts.driver.current or "",
        kind=kind,
        interface=stack.plugin.interface if kind is ChangeKind.INTERFACE else None,
        former_interface=former if kind is ChangeKind.INTERFACE else None,
        may_return=_may_return(kind, stack, former),
        is_released=answer.facts.is_released,
        is_half_done=answer.facts.driver.run is not None and answer.facts.driver.run.is_open,
    )


def _former_interface(facts: NodeFacts, record: Record | None, interface: GpuInterface) -> GpuInterface:
    """Return by what a node gave its GPUs before; where its file says the new one by now, its record knows.

    One that was about to leave the declared interface, and has not, never had another: no way leads there.
    """
    written, recorded = given_by(facts), None
    if record is not None and record.interface is not None:
        is_known = interface in {record.interface, record.former_interface}
        recorded = record.former_interface if is_known else record.interface
    is_on_its_way = record is not None and record.interface is interface and not record.phase.is_over
    if written is not None and written is not interface and not is_on_its_way:
        return written
    return recorded or interface.other


def _may_return(kind: ChangeKind, stack: StackSpec, former: GpuInterface) -> bool:
    """Tell whether a failure leads back: after another MIG layout the driver is as before.

    Claims need an API, and where they had some of the GPUs, it has to be declared which.
    """
    if kind is ChangeKind.INTERFACE and former is GpuInterface.BOTH and not stack.plugin.claims:
        return False
    if kind is ChangeKind.INTERFACE and former.has_claims:
        return stack.plugin.reaches_api
    return kind is not ChangeKind.MIG


def _says_nothing(failure: Failure, phase: Phase) -> bool:
    """Tell whether a look that failed says nothing of a node in flight: the change of its driver goes on without us."""
    return not phase.is_over and (failure.status is Status.UNREACHABLE or phase in {Phase.SWAP, Phase.ROLLBACK})


def _is_mid_change(answer: Assessment, phase: Phase) -> bool:
    """Tell whether the facts of a node in flight are those of a moment in the middle of a change of its driver."""
    run = answer.facts.driver.run
    return not phase.is_over and run is not None and run.state == "running"


def _unreached(view: NodeView, record: Record, target: str, drain: DrainPolicy) -> NodeState:
    """Return a node in flight of which only its record is known: it may reboot, and its swap goes on without us.

    Its next step tries to reach it, for as long as a lost node is waited for, and plans it then.
    """
    return NodeState(
        view=view,
        target=target,
        origin=record.origin,
        drain=drain,
        is_disruptive=record.phase not in {Phase.VERIFY, Phase.RESUME},  # these say that it has been changed
        origin_change=record.origin_change,
        may_return=record.kind is not ChangeKind.MIG,
        kind=record.kind if record.kind in _NOT_OF_DRIVERS else ChangeKind.DRIVER,
        interface=record.interface,
        former_interface=record.former_interface,
    )


def _kind(plan: NodePlan, record: Record | None, interface: GpuInterface) -> ChangeKind:
    """Return what a node is changed for; one that is as declared by now comes to its end as what it is.

    One that is out of service changes over on its way back.
    """
    ending = [item for item in plan.items if item.disruption in ENDS_WORK]
    if any(item.role is Role.DRIVER for item in ending):
        return ChangeKind.DRIVER
    if ending:
        return ChangeKind.MIG if all(item.action is Action.DIVIDE for item in ending) else ChangeKind.OTHER
    is_out = record is not None and not record.phase.is_in_service and not record.kind.is_in_place
    if changes_over(plan):
        return ChangeKind.OTHER if is_out else ChangeKind.INTERFACE
    if record is not None and record.interface is not None:
        is_done = record.phase.is_in_service and record.interface is not interface
        return ChangeKind.DRIVER if is_done else ChangeKind.INTERFACE
    is_other = record is not None and record.kind in _NOT_OF_DRIVERS and not record.phase.is_over
    return record.kind if record is not None and is_other else ChangeKind.DRIVER
