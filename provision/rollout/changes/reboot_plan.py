"""Sorts nodes for `grapnel reboot`: which go through the rollout, which stay as they are, which are refused. Pure.

A request is a moment: every node that was asked for is to be in a boot that grapnel began after it. So the same request
may be made again after a crash: a node that was rebooted since then stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.apply.model import Failure, NodeResult, Status
from provision.apply.playbooks import is_boot
from provision.declaration.spec.model import Rollout
from provision.declaration.spec.text.excerpt import few
from provision.rollout.decision.census import in_order
from provision.rollout.decision.order.together import with_domains
from provision.rollout.decision.policy import drain_policy, strictest
from provision.rollout.decision.prepare import Prepared, in_their_places
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import CLOCKS_DIFFER, ChangeKind, Phase
from provision.rollout.steps.way_back import loaded_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.rollout.model import NodeView, Record

COMMAND: Final = "grapnel reboot"
SINCE: Final = timedelta(hours=24)  # how long ago a reboot of ours may be that counts as the one that is asked for
_AFTER: Final = (Phase.VERIFY, Phase.RESUME)
_WHEN: Final = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class RebootVerb:
    """What messages and results call it."""

    command: str = COMMAND
    status: Status = Status.REBOOTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootRequest:
    """What is asked for: that nodes were rebooted after ``since``, with ``only_needed`` those that need it.

    ``now`` is the time of the machine that asks. ``groups`` are the inventory's, by node.
    """

    now: datetime
    since: datetime
    only_needed: bool = False
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootPlan:
    """What a request comes to: the nodes that are rebooted, and the results of those that are not.

    ``needs`` are the reasons for which nodes need a reboot, as far as they have any.
    """

    prepared: Prepared
    settled: Mapping[str, NodeResult] = field(default_factory=dict)
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    verb: RebootVerb = RebootVerb()


def plan_reboots(
    answers: Mapping[str, NodeFacts | Failure],
    stacks: Mapping[str, StackSpec],
    views: Mapping[str, NodeView | NodeProblem],
    request: RebootRequest,
) -> RebootPlan:
    """Sort the nodes of a request; the first three mappings have the same nodes. Pure."""
    needs = {name: () if isinstance(answer, Failure) else why_needed(answer) for name, answer in answers.items()}
    states: list[NodeState] = []
    settled: dict[str, NodeResult] = {}
    for name, answer in answers.items():
        view = views[name]
        if isinstance(view, NodeProblem):
            message = f"it has to be drained first, but cannot be: {view.message} ({view.hint})"
            settled[name] = NodeResult(name, Status.REFUSED, failure=Failure(Status.REFUSED, message))
            continue
        state, result = _sort(answer, stacks[name], view, request, needs[name])
        states.append(state)
        if result is not None:
            settled[name] = result
    shared = next((stack.rollout for stack in stacks.values()), Rollout())
    states = _in_domains(states, shared, request)
    states = in_their_places(states, shared, request.groups)
    flying = [state.name for state in states if state.is_in_flight]
    rollout = tuple(dict.fromkeys((*flying, *(state.name for state in in_order(states)))))
    policy = strictest([stacks[state.name].rollout for state in states], len(states))
    return RebootPlan(
        prepared=Prepared(states=tuple(states), rollout=rollout, policy=policy), settled=settled, needs=needs
    )


def another_change(views: Mapping[str, NodeView | NodeProblem]) -> tuple[str, Phase] | None:
    """Return a node that is out of service for something else, which has to come to its end first; None for none."""
    for name, view in views.items():
        record = None if isinstance(view, NodeProblem) else view.record
        if record is not None and not record.phase.is_over and record.kind is not ChangeKind.REBOOT:
            return name, record.phase
    return None


def why_needed(facts: NodeFacts) -> tuple[str, ...]:
    """Return why a node needs a reboot, as its operating system and its boot loader have it."""
    found = []
    upcoming = next((kernel.release for kernel in facts.kernels if kernel.default), facts.node.kernel)
    if upcoming != facts.node.kernel:
        found.append(f"kernel {facts.node.kernel} runs, and {upcoming} boots next")
    if facts.pending_reboot is not None:
        packages = facts.pending_reboot.packages
        found.append(f"{few(packages)} asked for it" if packages else f"{facts.pending_reboot.path} is there")
    return tuple(found)


def why_not(facts: NodeFacts) -> str:
    """Return why a reboot would do harm, or is another system's to do; empty where it is neither."""
    run = facts.driver.run
    if run is not None and run.state == "needs-reboot":
        return f"its driver change waits for a reboot ({run.reboot}): `grapnel apply` reboots it, and goes on with that"
    if run is not None and run.state == "running":
        return f"its driver change ({run.verb}) has not come to its end: `grapnel apply` goes on with it"
    version, running = loaded_version(facts), next((each for each in facts.kernels if each.running), None)
    upcoming = next((each for each in facts.kernels if each.default), None)
    if not version or running is None or upcoming is None or not running.modules:
        return ""
    if any(module.version == version for module in upcoming.modules):
        return ""
    return (
        f"kernel {upcoming.release} boots next and has no module of driver {version}: build it for that kernel, such "
        "as by `grapnel stage`, or have the boot loader start another one"
    )


def _sort(
    answer: NodeFacts | Failure, stack: StackSpec, view: NodeView, request: RebootRequest, needs: Sequence[str]
) -> tuple[NodeState, NodeResult | None]:
    """Return the node as the rollout takes it, and its result where it is not one that is to be rebooted."""
    record = view.record
    ours = record if record is not None and record.kind is ChangeKind.REBOOT else None
    state = _state(answer, stack, view, ours)
    if ours is not None and not ours.phase.is_over:
        return state, None
    if isinstance(answer, Failure):
        return replace(state, obstacle=answer.message), NodeResult(view.name, answer.status, failure=answer)
    if ours is not None and ours.phase is Phase.FAILED:
        return state, None
    obstacle = _why_refused(answer, record)
    if obstacle:
        refused = Failure(Status.REFUSED, obstacle)
        return replace(state, obstacle=obstacle), NodeResult(view.name, Status.REFUSED, failure=refused)
    still = f"; it still needs one: {'; '.join(needs)}" if needs else ""
    if ours is not None and request.since <= ours.since <= request.now + CLOCKS_DIFFER:
        again = f"`{COMMAND} --since {ours.since + timedelta(seconds=1):{_WHEN}} {view.name}` does it again"
        note = f"was rebooted at {ours.since:%Y-%m-%d %H:%M:%S} UTC{still}; {again}"
        done = replace(state, is_disruptive=False, is_as_declared=True, boot=ours.boot)
        return done, NodeResult(view.name, Status.UNCHANGED, note=note)
    if request.only_needed and not needs:
        return replace(state, is_disruptive=False, is_as_declared=True), NodeResult(view.name, Status.UNCHANGED)
    return state, None


def _why_refused(facts: NodeFacts, record: Record | None) -> str:
    if record is not None and record.phase is Phase.FAILED:
        return (
            f"its driver change has failed in {record.failed_in or record.phase}, so it is out of service already: "
            "reboot it by hand if that helps, then `grapnel apply`"
        )
    return why_not(facts) if is_boot(facts.node.boot_id) else "it does not say in which boot it is"


def _state(answer: NodeFacts | Failure, stack: StackSpec, view: NodeView, ours: Record | None) -> NodeState:
    """Return a node that is to be rebooted, or has been: its record tells in which boot it was."""
    boot, loaded = "", ""
    if not isinstance(answer, Failure):
        boot, loaded = answer.node.boot_id, loaded_version(answer)
    is_open = ours is not None and ours.phase is not Phase.DONE
    origin, change = loaded, "" if isinstance(answer, Failure) else answer.driver.current or ""
    target: str = loaded
    if ours is not None and is_open:
        target, origin, change = ours.target, ours.origin, ours.origin_change or ""
    # Before, the step is run again: it reboots no node that has left its boot, and restores what a boot forgets.
    is_rebooted = ours is not None and (ours.failed_in or ours.phase) in _AFTER and boot != ours.boot
    return NodeState(
        view=view,
        target=target,
        origin=origin,
        drain=drain_policy(stack.rollout, stack.scheduler),
        is_disruptive=not is_rebooted,
        is_as_declared=is_rebooted,
        origin_change=change,
        may_return=False,
        kind=ChangeKind.REBOOT,
        boot=ours.boot if ours is not None and is_open else boot,
        is_released=not isinstance(answer, Failure) and answer.is_released,
    )


def _in_domains(states: Sequence[NodeState], shared: Rollout, request: RebootRequest) -> list[NodeState]:
    """Return the nodes with their domains: those that are rebooted of one go together, the others need not take part.

    The driver stays the same, so that a domain may be rebooted in parts.
    """
    taking_part = [
        state if state.wants_to_begin or state.is_in_flight else None
        for state in with_domains(states, shared.domains, request.groups)
    ]
    return [state if found is None else found for state, found in zip(states, taking_part, strict=True)]
