"""Who may begin, and why the others do not."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import Rollout
from provision.rollout.decision.decide import decide
from provision.rollout.decision.policy import Policy, strictest
from provision.rollout.decision.snapshot import Decision, RunStep, Snapshot, StepResult, Withdraw, Write
from provision.rollout.model import Phase, Record
from tests.provision.rollout.fakes import MINUTE, NOON, record, state, view

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import NodeView

NOW = NOON + 10 * MINUTE


def at(*nodes: NodeState, now: datetime = NOW, still_since: datetime | None = None, **policy: object) -> Decision:
    """Return what is decided for nodes; by default one at a time, all of them may be unavailable."""
    limits = {"max_parallel": 1, "max_unavailable": len(nodes), **policy}
    return decide(Snapshot(nodes=nodes, began=NOON, still_since=still_since), Policy(**limits), now)  # type: ignore[arg-type]  # fields of the policy, by name


def flying(name: str, phase: Phase = Phase.SWAP, **more: object) -> NodeState:
    return state(name, view(name, record(phase)), **{"is_busy": True, **more})


def done(name: str, since: datetime = NOON, **seen: object) -> NodeState:
    return state(name, view(name, record(Phase.DONE, since=since), **seen), is_disruptive=False)


def failed(name: str, **more: object) -> NodeState:
    remembered = record(Phase.FAILED, reason="3 of 4 GPUs answer", failed_in=Phase.VERIFY)
    return state(name, view(name, remembered), **more)


def begun(decision: Decision) -> list[str]:
    return [action.node for action in decision.actions if isinstance(action, Write)]


def test_nodes_begin_in_the_order_of_the_inventory() -> None:
    decision = at(state("n2"), state("n1"), max_parallel=1)
    assert begun(decision) == ["n2"]
    assert decision.waiting == {"n1": "waits for n2: cordon"}


def test_a_node_in_flight_has_the_slot() -> None:
    decision = at(flying("n1", Phase.VERIFY), state("n2"))
    assert (decision.actions, decision.is_over) == ((), False)
    assert decision.waiting == {"n2": "waits for n1: verify"}


def test_several_slots_are_used() -> None:
    decision = at(flying("n1"), state("n2"), state("n3"), state("n4"), max_parallel=3)
    assert begun(decision) == ["n2", "n3"]
    assert decision.waiting == {"n4": "waits for n1: swap and 2 more"}


def test_what_failed_before_comes_first() -> None:
    decision = at(state("n1"), failed("n2"), max_unavailable=1)
    assert begun(decision) == ["n2"]
    assert decision.waiting == {"n1": "waits for n2: cordon"}


def test_unfinished_nodes_go_on_before_anything_begins() -> None:
    decision = at(failed("n1"), state("n2", view("n2", record(Phase.SWAP))))
    assert decision.actions == (RunStep("n2", Phase.SWAP),)
    assert decision.waiting == {"n1": "waits for n2: swap"}


@pytest.mark.parametrize(
    ("blocker", "reason"),
    [
        pytest.param(view("n7", is_cordoned=True), "1 of 3 nodes may be unavailable: n7 is cordoned", id="cordoned"),
        pytest.param(view("n7", is_ready=False), "1 of 3 nodes may be unavailable: n7 is not ready", id="not ready"),
    ],
)
def test_nodes_that_are_unavailable_for_other_reasons_count(blocker: NodeView, reason: str) -> None:
    nodes = (state("n1"), state("n2"), state("n7", blocker, is_disruptive=False))
    decision = at(*nodes, max_unavailable=1, still_since=NOW - MINUTE)
    assert decision.waiting == {"n1": reason, "n2": reason}
    assert (decision.stop, decision.is_over) == (reason, True)
    assert begun(at(*nodes, max_unavailable=2)) == ["n1"]


def test_what_only_a_person_can_change_is_not_waited_for() -> None:
    blocked = state("n1"), state("n7", view("n7", is_cordoned=True), is_disruptive=False)
    assert at(*blocked, max_unavailable=1).is_over


def test_a_node_that_is_not_ready_is_waited_for_a_while() -> None:
    blocked = state("n1"), state("n7", view("n7", is_ready=False), is_disruptive=False)
    for since in (None, NOW - MINUTE + timedelta(seconds=1)):
        decision = at(*blocked, max_unavailable=1, still_since=since)
        assert (decision.stop, decision.is_over, decision.is_still) == (None, False, True)


def test_a_node_that_is_cordoned_already_takes_nothing_more_out_of_service() -> None:
    assert begun(at(state("n1", view("n1", is_cordoned=True)), state("n2"), max_unavailable=1)) == ["n1"]


def test_a_node_that_is_not_ready_does_not_begin() -> None:
    decision = at(state("n1", view("n1", is_ready=False)), state("n2"))
    assert begun(decision) == ["n2"]
    assert decision.waiting == {"n1": "n1 is not ready: bring its kubelet back first"}


def test_after_a_failure_nothing_begins_and_what_is_in_flight_goes_on() -> None:
    nodes = failed("n1", has_failed=True), state("n2", view("n2", record(Phase.SWAP))), state("n3"), failed("n4")
    decision = at(*nodes, max_parallel=4)
    assert decision.actions == (RunStep("n2", Phase.SWAP),)
    assert (decision.stop, decision.is_over) == ("n1 failed in verify", False)
    assert decision.waiting == dict.fromkeys(("n3", "n4"), "stopped: n1 failed in verify")
    assert at(nodes[0], nodes[2]).is_over


def test_nothing_begins_in_the_moment_in_which_a_node_fails() -> None:
    step = StepResult(phase=Phase.SWAP, ended=NOW, failure="no luck")
    decision = at(state("n1", view("n1", record(Phase.SWAP)), step=step), state("n2"), max_parallel=2)
    assert begun(decision) == ["n1"], "only that it failed is written"
    assert decision.waiting == {"n2": "stopped: n1 failed in swap"}


def test_an_unfinished_node_whose_driver_may_have_been_changed_and_that_cannot_be_asked_fails_with_the_reason() -> None:
    stuck = state("n1", view("n1", record(Phase.SWAP)), obstacle="no route to host")
    decision = at(stuck, state("n2"), max_parallel=2)
    first = decision.actions[0]
    assert isinstance(first, Write)
    assert (first.record.phase, first.record.failed_in, first.record.reason) == (
        Phase.FAILED,
        Phase.SWAP,
        "no route to host",
    )
    assert decision.stop == "n1 failed in swap"
    assert begun(decision) == ["n1"]


def test_an_unfinished_node_that_was_not_touched_and_cannot_be_changed_is_put_back() -> None:
    """It stayed cordoned, as one that has failed, although nothing but its pods had been asked to leave."""
    stuck = state("n1", view("n1", record(Phase.DRAIN)), obstacle="550.1 is not in the catalogue")
    decision = at(stuck, state("n2"), max_parallel=2)
    assert decision.actions[0] == Withdraw("n1", cordoned=False, why="550.1 is not in the catalogue")
    assert decision.stop is None


def test_a_node_on_its_way_back_needs_no_plan() -> None:
    stuck = state("n1", view("n1", record(Phase.ROLLBACK)), obstacle="550.1 is not in the catalogue")
    decision = at(stuck, state("n2"), max_parallel=2)
    assert decision.actions == (RunStep("n1", Phase.ROLLBACK, record(Phase.ROLLBACK).way_back),)
    assert decision.stop == "n1 failed in verify"


def test_a_node_with_problems_never_begins() -> None:
    decision = at(state("n1", obstacle="the node is cursed"))
    assert (decision.actions, decision.is_over) == ((), True)


def test_the_next_node_follows_after_the_soak() -> None:
    nodes, soak = (done("n1", since=NOW - 4 * MINUTE), state("n2")), 5 * MINUTE
    decision = at(*nodes, soak=soak)
    assert (decision.actions, decision.is_over) == ((), False)
    assert decision.waiting == {"n2": "soaks until 2026-05-04 12:11:00 UTC: n1 was just changed"}
    assert begun(at(*nodes, soak=soak, now=NOW + MINUTE)) == ["n2"]


def test_a_date_to_come_holds_nobody_up() -> None:
    ahead = done("n1", since=NOW + timedelta(days=9999))
    assert begun(at(ahead, state("n2"), soak=5 * MINUTE)) == ["n2"]


def test_what_soaks_has_to_stay_healthy() -> None:
    sick = done("n1", since=NOW - MINUTE, is_ready=False)
    decision = at(sick, state("n2"), soak=5 * MINUTE, still_since=NOW - MINUTE)
    assert (decision.stop, decision.is_over) == ("n1 has not been ready since it was changed", True)


def test_nothing_is_left_to_do_after_the_last_node_even_if_it_soaks() -> None:
    assert at(done("n1", since=NOW), done("n2"), soak=5 * MINUTE).is_over


def test_done_once_is_not_done_for_the_next_target() -> None:
    former = Record(phase=Phase.DONE, target="525.1", began=NOON, since=NOON)
    assert begun(at(state("n1", view("n1", former)))) == ["n1"]


@pytest.mark.parametrize(
    ("limit", "nodes", "count"),
    [(2, 100, 2), ("25%", 3, 1), ("25%", 8, 2), ("25%", 9, 3), ("1%", 1, 1), ("100%", 7, 7)],
)
def test_percentages_are_rounded_up(limit: int | str, nodes: int, count: int) -> None:
    assert strictest([Rollout(max_unavailable=limit)], nodes).max_unavailable == count


def test_every_node_has_its_say() -> None:
    calm = Rollout(max_parallel=1, max_unavailable=9, soak_minutes=3)
    bold = Rollout(max_parallel=4, max_unavailable="50%", soak_minutes=0)
    assert strictest([calm, bold], 8) == Policy(max_parallel=1, max_unavailable=4, soak=3 * MINUTE)


def test_a_failed_node_that_somebody_put_back_into_service_counts_like_any_other() -> None:
    remembered = record(Phase.FAILED, reason="3 of 4 GPUs answer", failed_in=Phase.VERIFY)
    back = state("n2", view("n2", remembered, is_cordoned=False))
    decision = at(flying("n1"), back, max_parallel=2, max_unavailable=1)
    assert (begun(decision), decision.waiting) == ([], {"n2": "1 of 2 nodes may be unavailable: n1 is in swap"})
