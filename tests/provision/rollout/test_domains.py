"""Nodes of one domain are changed as one: no two drivers ever serve in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import Domains, Wave
from provision.rollout.decision.decide import decide
from provision.rollout.decision.order.domains import members_of
from provision.rollout.decision.order.membership import with_waves
from provision.rollout.decision.order.together import why_apart, with_domains
from provision.rollout.decision.policy import Policy
from provision.rollout.decision.snapshot import Decision, RunStep, Snapshot, StepResult, Withdraw, Write
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import (
    MINUTE,
    NEW,
    NOON,
    OLD,
    record,
    state,
    view,
)

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import NodeView

NOW = NOON + 10 * MINUTE
BOLD = Policy(max_parallel=9, max_unavailable=9)


def domain_of(name: str) -> str:
    """Return the rack that a node's name begins with, as in ``a1``; a node of no rack begins with ``n``."""
    return "" if name.startswith("n") else f"rack-{name[0]}"


def at(*nodes: NodeState, policy: Policy = BOLD, now: datetime = NOW) -> Decision:
    placed = tuple(replace(node, domain=domain_of(node.name)) for node in nodes)
    return decide(Snapshot(nodes=placed, began=NOON, domains=members_of(placed)), policy, now)


def begun(decision: Decision) -> list[str]:
    return [action.node for action in decision.actions if isinstance(action, Write)]


def in_phase(name: str, phase: Phase, *, is_done: bool = False, **more: object) -> NodeState:
    step = StepResult(phase=phase, ended=NOON, is_done=True) if is_done else None
    is_swapped = phase in (Phase.VERIFY, Phase.RESUME)
    flags = {"is_disruptive": not is_swapped, "is_as_declared": is_swapped, **more}
    return state(name, view(name, record(phase)), step=step, **flags)


# Beginning


def test_a_domain_begins_as_one() -> None:
    assert begun(at(state("a1"), state("a2"), state("b1"), policy=replace(BOLD, max_parallel=2))) == ["a1", "a2"]


def test_a_domain_that_does_not_fit_waits_and_nobody_slips_in_before_it() -> None:
    nodes = (in_phase("n1", Phase.SWAP, is_busy=True), state("a1"), state("a2"), state("n2"))
    decision = at(*nodes, policy=replace(BOLD, max_parallel=2))
    assert begun(decision) == []
    reason = "its domain rack-a of 2 nodes begins together: waits for n1: swap"
    assert decision.waiting == {
        "a1": reason,
        "a2": reason,
        "n2": "waits for domain rack-a, whose turn it is: waits for n1: swap",
    }


def test_a_domain_larger_than_max_parallel_begins_when_nothing_else_is_under_way() -> None:
    assert begun(at(state("a1"), state("a2"), state("a3"), policy=replace(BOLD, max_parallel=1))) == ["a1", "a2", "a3"]


def test_a_domain_larger_than_max_unavailable_never_begins_and_says_so() -> None:
    decision = at(state("a1"), state("a2"), state("n1"), policy=replace(BOLD, max_unavailable=1))
    assert decision.waiting["a1"] == (
        "its domain rack-a takes 2 nodes out of service together, and maxUnavailable allows 1 of 3: raise it"
    )
    assert begun(decision) == ["n1"], "the others need not wait for that"


def test_outages_of_others_leave_a_domain_less_room() -> None:
    outage = state("n7", view("n7", is_cordoned=True), is_disruptive=False)
    decision = at(outage, state("a1"), state("a2"), policy=replace(BOLD, max_unavailable=2))
    assert begun(decision) == []
    assert "2 of 3 nodes may be unavailable: n7 is cordoned" in decision.waiting["a1"]
    assert decision.is_over, "only a person can change it"


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        pytest.param(
            state("a2", view("a2", is_ready=False)),
            "its domain rack-a waits: a2 is not ready: bring its kubelet back first",
            id="not ready",
        ),
        pytest.param(
            state("a2", view("a2", is_skipped=True)),
            "its domain rack-a waits: a2 is skipped: `grapnel skip --undo a2` ends that",
            id="skipped",
        ),
        pytest.param(
            state("a2", view("a2", held_by="kured reboots it")),
            "its domain rack-a waits: a2 kured reboots it",
            id="held by another tool",
        ),
        pytest.param(
            state("a2", obstacle="no route to host", is_disruptive=False),
            "a2 of its domain rack-a cannot take part: no route to host",
            id="it cannot be asked",
        ),
    ],
)
def test_a_node_that_cannot_take_part_keeps_its_domain_in_service(member: NodeState, reason: str) -> None:
    decision = at(state("a1"), member, state("n1"))
    assert begun(decision) == ["n1"]
    assert decision.waiting["a1"] == reason


def test_a_node_that_is_as_declared_already_keeps_nobody_waiting() -> None:
    there = state("a2", view("a2", is_ready=False), is_disruptive=False, is_as_declared=True)
    assert begun(at(state("a1"), there)) == ["a1"]


# Going together


@pytest.mark.parametrize(
    ("phase", "following"),
    [(Phase.RELEASE, Phase.SWAP), (Phase.VERIFY, Phase.RESUME), (Phase.RESUME, Phase.DONE)],
)
def test_no_node_leaves_a_phase_before_the_others_are_as_far(phase: Phase, following: Phase) -> None:
    first = in_phase("a1", phase, is_done=True)
    decision = at(first, in_phase("a2", phase, is_busy=True))
    assert decision.actions == ()
    assert decision.waiting == {"a1": f"waits for a2 of its domain rack-a: {phase}"}

    together = at(first, in_phase("a2", phase, is_done=True))
    assert [action.record.phase for action in together.actions if isinstance(action, Write)] == [following] * 2


def test_a_node_that_was_cut_short_half_way_through_a_barrier_follows() -> None:
    decision = at(in_phase("a1", Phase.SWAP, is_busy=True), in_phase("a2", Phase.RELEASE, is_done=True))
    assert begun(decision) == ["a2"]


def test_phases_that_nobody_waits_for_are_each_nodes_own() -> None:
    decision = at(in_phase("a1", Phase.SWAP, is_done=True), in_phase("a2", Phase.SWAP, is_busy=True))
    assert begun(decision) == ["a1"]


def test_what_has_not_begun_follows_its_domain_whatever_the_limits() -> None:
    flying = in_phase("a1", Phase.RELEASE, is_done=True)
    decision = at(flying, state("a2", wave=1), policy=replace(BOLD, max_parallel=1), now=NOON + MINUTE)
    assert begun(decision) == ["a2"]
    assert decision.waiting == {"a1": "waits for a2 of its domain rack-a: it has yet to begin"}


# Failing


@pytest.mark.parametrize(
    ("phase", "following"),
    [
        pytest.param(Phase.CORDON, Phase.RETURNED, id="before anything was touched: it takes pods again"),
        pytest.param(Phase.DRAIN, Phase.RETURNED, id="while its pods leave: the same"),
        pytest.param(Phase.RELEASE, Phase.ROLLBACK, id="its GPUs are released"),
        pytest.param(Phase.SWAP, Phase.ROLLBACK, id="its driver may be another"),
        pytest.param(Phase.VERIFY, Phase.ROLLBACK, id="its driver is another"),
        pytest.param(Phase.RESUME, Phase.ROLLBACK, id="its GPUs are offered"),
    ],
)
def test_when_one_fails_all_go_back(phase: Phase, following: Phase) -> None:
    failed = state("a1", view("a1", record(Phase.ROLLBACK)), is_busy=True)
    action = at(failed, in_phase("a2", phase)).actions[0]
    assert isinstance(action, Write)
    assert (action.record.phase, action.record.because_of) == (following, "a1")
    assert "since a1 of its domain failed: 3 of 4 GPUs answer" in action.record.complaint
    assert not action.record.is_blamed, "only one of them has failed"


def test_a_node_that_is_tried_again_may_be_touched_although_it_only_drains() -> None:
    failed = state("a1", view("a1", record(Phase.ROLLBACK)), is_busy=True)
    again = state("a2", view("a2", record(Phase.DRAIN, is_touched=True)))
    action = at(failed, again).actions[0]
    assert isinstance(action, Write)
    assert action.record.phase is Phase.ROLLBACK


def test_nothing_of_a_domain_that_failed_begins_again_in_the_same_run() -> None:
    failed = state("a1", view("a1", record(Phase.RETURNED, failed_in=Phase.VERIFY, reason="no")), has_failed=True)
    decision = at(failed, state("a2"), state("n1"), policy=replace(BOLD, max_failures=9))
    assert begun(decision) == ["n1"]
    assert decision.waiting == {"a2": "a1 of its domain rack-a has failed: the next apply tries it again"}


def test_a_node_that_fails_beside_one_in_service_with_the_new_driver_stays_out() -> None:
    done = state("a1", view("a1", record(Phase.DONE)), is_disruptive=False)
    step = StepResult(phase=Phase.RESUME, ended=NOON, failure="no daemon")
    failing = replace(in_phase("a2", Phase.RESUME), step=step)
    last = in_phase("a3", Phase.RESUME, is_done=True)
    (failing_now,) = at(done, failing, last).actions
    assert isinstance(failing_now, Write)
    assert failing_now.record.phase is Phase.FAILED

    failed = state("a2", view("a2", failing_now.record), has_failed=True)
    (last_now,) = at(done, failed, last, policy=replace(BOLD, max_failures=1)).actions
    assert isinstance(last_now, Write)
    assert last_now.record.phase is Phase.DONE


def test_a_node_that_cannot_begin_any_more_is_not_waited_for_for_ever() -> None:
    waiting = (in_phase("a1", Phase.RELEASE, is_done=True), state("a2", obstacle="its driver is not staged: no space"))
    assert at(*waiting, now=NOON + 4 * MINUTE).waiting == {
        "a1": "waits for a2 of its domain rack-a: its driver is not staged: no space"
    }
    action = at(*waiting, now=NOON + 5 * MINUTE).actions[0]
    assert isinstance(action, Write)
    assert (action.record.phase, action.record.because_of) == (Phase.ROLLBACK, "a2")


@pytest.mark.parametrize("driver", [OLD, NEW])
def test_a_node_that_need_not_be_out_stays_so_beside_one_with_another_driver(driver: str) -> None:
    """The other one was done before the domain was declared, and reboots as the declaration goes back to OLD."""
    other = state("a1", target=OLD, origin=driver, is_disruptive=False, obstacle="it reboots")
    drained = state("a2", view("a2", record(Phase.DRAIN)), target=OLD, is_disruptive=False, is_as_declared=True)
    (action,) = at(other, drained).actions
    assert isinstance(action, Withdraw) is (driver == OLD)


def test_on_the_way_back_nobody_waits() -> None:
    back = record(Phase.VERIFY, is_returning=True, failed_in=Phase.SWAP, reason="no")
    step = StepResult(phase=Phase.VERIFY, ended=NOON, is_done=True)
    decision = at(state("a1", view("a1", back), step=step), in_phase("a2", Phase.SWAP, is_busy=True))
    assert begun(decision) == ["a1"]


def test_commands_that_cannot_go_back_leave_the_failed_node_behind() -> None:
    failed = state("a1", view("a1", record(Phase.FAILED)), has_failed=True, may_return=False)
    decision = at(failed, in_phase("a2", Phase.VERIFY, is_done=True, may_return=False))
    assert begun(decision) == ["a2"]


# Where nodes belong


GROUPS = {"a1": ("rack-a",), "a2": ("all", "rack-a"), "n1": ("all",)}
RACKS = Domains(groups=("rack-a", "rack-b"))


def test_domains_are_groups_of_the_inventory_or_labels() -> None:
    nodes = [state("a1"), state("a2"), state("n1")]
    assert [each.domain for each in with_domains(nodes, RACKS, GROUPS)] == ["rack-a", "rack-a", ""]
    labelled = [state(name, view(name, labels={"clique": "c.1"} if name != "n1" else {})) for name in ("a1", "n1")]
    assert [each.domain for each in with_domains(labelled, Domains(node_label="clique"), {})] == ["c.1", ""]
    assert [each.domain for each in with_domains(nodes, None, GROUPS)] == ["", "", ""]


def test_a_domain_whose_nodes_declare_different_drivers_is_refused() -> None:
    nodes = with_domains([state("a1"), state("a2", target="550.1"), state("n1")], RACKS, GROUPS)
    reasons = why_apart(nodes, {}, RACKS, GROUPS)
    assert set(reasons) == {"a1", "a2"}
    assert "its nodes declare 535.309.01, 550.1" in reasons["a1"].replace(" and ", ", ")


def test_a_domain_of_which_a_node_is_not_in_the_cluster_is_refused() -> None:
    problem = NodeProblem(name="a2", message="a2 is no node of cluster test")
    nodes = with_domains([state("a1"), state("n1")], RACKS, GROUPS)
    assert why_apart(nodes, {"a2": problem}, RACKS, GROUPS) == {
        "a1": "a2 of its domain rack-a cannot take part: a2 is no node of cluster test"
    }


@pytest.mark.parametrize(
    ("left_out", "is_refused"),
    [
        pytest.param(view("a2"), True, id="nobody knows what it has"),
        pytest.param(view("a2", record(Phase.DONE, target=OLD)), True, id="it has another driver"),
        pytest.param(view("a2", record(Phase.RETURNED)), True, id="it went back"),
        pytest.param(view("a2", record(Phase.SWAP)), True, id="it is out of service"),
        pytest.param(NodeProblem(name="a2", message="gone"), True, id="it is not to be found"),
        pytest.param(view("a2", record(Phase.DONE)), False, id="it has this driver already"),
        pytest.param(view("n1"), False, id="it is in no domain"),
    ],
)
def test_an_apply_that_leaves_out_a_node_of_a_domain_is_refused(
    left_out: NodeView | NodeProblem, *, is_refused: bool
) -> None:
    """Naming some nodes put two drivers into service in one domain."""
    nodes = with_domains([state("a1")], RACKS, GROUPS)
    reason = "its domain rack-a is changed as one, and a2 of it is not named: name all of its nodes"
    found = why_apart(nodes, {}, RACKS, GROUPS, {left_out.name: left_out})
    assert found == ({"a1": reason} if is_refused else {})


def test_a_label_that_no_node_has_is_no_domain_of_its_own() -> None:
    reasons = why_apart([state("a1")], {}, Domains(node_label="nvidia.com/gpu.cliqeu"), {})
    assert reasons["a1"].startswith("no Node has the label nvidia.com/gpu.cliqeu")


@pytest.mark.parametrize(
    ("wave", "members"),
    [
        pytest.param(Wave(size=2), ["a1", "a2"], id="as many as fit"),
        pytest.param(Wave(size=1), ["a1", "a2"], id="one domain at least"),
        pytest.param(Wave(size=3), ["a1", "a2"], id="no part of the next one"),
        pytest.param(Wave(size=4), ["a1", "a2", "b1", "b2"], id="two of them"),
        pytest.param(Wave(hosts=("b2",)), ["b1", "b2"], id="the domain of a node that is named"),
        pytest.param(Wave(groups=("first",)), ["a1", "a2", "n1"], id="the domains of a group's nodes"),
    ],
)
def test_no_wave_parts_a_domain(wave: Wave, members: list[str]) -> None:
    nodes = [replace(state(name), domain=domain_of(name)) for name in ("a1", "a2", "b1", "b2", "n1")]
    placed = with_waves(nodes, (wave, Wave()), {"a2": ("first",), "n1": ("first",)})
    assert [each.name for each in placed if each.wave == 0] == members


# Whole rollouts


def test_steps_of_the_way_back_are_told_so() -> None:
    remembered = record(Phase.ROLLBACK, because_of="a2")
    decision = at(state("a1", view("a1", remembered)), state("a2", view("a2", record(Phase.DONE)), is_disruptive=False))
    assert decision.actions == (RunStep("a1", Phase.ROLLBACK, remembered.way_back),)
