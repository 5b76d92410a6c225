"""Nodes that people or other tools want left alone, and what becomes of the others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provision.rollout.decision.decide import decide
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.decision.snapshot import LONG, Decision, NodeState, RunStep, Snapshot, Write
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import MINUTE, NOON, record, state, view

NOW = NOON + 10 * MINUTE
PATIENCE = timedelta(seconds=LONG)
KURED = "kured is rebooting it: waits until it has"
WAVES = (WavePolicy(title="wave 1 of 2 (canary)"), WavePolicy(title="wave 2 of 2"))


def at(*nodes: NodeState, still_for: timedelta | None = None, **policy: object) -> Decision:
    since = None if still_for is None else NOW - still_for
    limits = {"max_parallel": 99, "max_unavailable": 99, **policy}
    return decide(Snapshot(nodes=nodes, began=NOON, still_since=since), Policy(**limits), NOW)  # type: ignore[arg-type]  # fields of the policy, by name


def skipped(name: str, **more: object) -> NodeState:
    return state(name, view(name, is_skipped=True), **more)


def held(name: str, **more: object) -> NodeState:
    return state(name, view(name, held_by=KURED), **more)


def done(name: str, **more: object) -> NodeState:
    return state(name, view(name, record(Phase.DONE)), is_disruptive=False, **more)


def begun(decision: Decision) -> list[str]:
    return [action.node for action in decision.actions if isinstance(action, Write)]


def test_a_skipped_node_does_not_begin_and_the_others_do() -> None:
    decision = at(skipped("n1"), state("n2"))
    assert begun(decision) == ["n2"]
    assert decision.waiting == {"n1": "is skipped: `grapnel skip --undo n1` ends that"}


def test_a_rollout_ends_at_once_when_only_skipped_nodes_are_left() -> None:
    decision = at(skipped("n1"), done("n2"))
    assert decision.is_over
    assert decision.stop == "n1 is skipped: `grapnel skip --undo n1` ends that"


def test_another_tool_is_waited_for_but_not_for_ever() -> None:
    assert at(held("n1")).waiting == {"n1": KURED}
    assert not at(held("n1")).is_over
    assert not at(held("n1"), still_for=PATIENCE - MINUTE).is_over
    ended = at(held("n1"), still_for=PATIENCE)
    assert (ended.is_over, ended.stop) == (True, KURED)


def test_the_reason_of_the_end_is_what_somebody_can_change_before_what_somebody_wanted() -> None:
    assert at(skipped("n1"), held("n2"), still_for=PATIENCE).stop == KURED


@pytest.mark.parametrize("out", [{"is_skipped": True}, {"held_by": KURED}], ids=["skipped", "held"])
def test_a_node_in_flight_goes_on_to_its_end(out: dict[str, object]) -> None:
    decision = at(state("n1", view("n1", record(Phase.SWAP), **out)))
    assert decision.actions == (RunStep("n1", Phase.SWAP),)


def test_a_failed_node_that_is_skipped_is_not_tried_again_and_stops_nobody() -> None:
    decision = at(state("n1", view("n1", record(Phase.FAILED), is_skipped=True)), state("n2"))
    assert begun(decision) == ["n2"]


@pytest.mark.parametrize("kept_out", [skipped, held])
def test_a_wave_does_not_wait_for_a_node_that_is_left_alone(kept_out: object) -> None:
    decision = at(done("n1", wave=0), kept_out("n2", wave=0), state("n3", wave=1), waves=WAVES)  # type: ignore[operator]  # one of two functions above
    assert begun(decision) == ["n3"]


@pytest.mark.parametrize("kept_out", [skipped, held])
def test_a_canary_of_which_nothing_may_be_changed_proves_nothing(kept_out: object) -> None:
    decision = at(kept_out("n1", wave=0), state("n2", wave=1), waves=WAVES)  # type: ignore[operator]  # one of two functions above
    assert begun(decision) == []
    assert decision.waiting["n2"].startswith("no node of wave 1 of 2 (canary) could be changed: n1: ")


def test_a_held_node_begins_in_a_later_wave_than_its_own() -> None:
    nodes = (done("n1", wave=0), state("n2", wave=0), state("n3", wave=1))
    decision = decide(
        Snapshot(nodes=nodes, began=NOON, passed=1), Policy(max_parallel=99, max_unavailable=99, waves=WAVES), NOW
    )
    assert begun(decision) == ["n2"]


def test_a_higher_priority_begins_first_but_only_within_its_wave() -> None:
    nodes = [
        state("n1", wave=0),
        state("n2", view("n2", priority=-1), wave=0),
        state("n3", view("n3", priority=5), wave=0),
        state("n4", view("n4", priority=1000), wave=1),
    ]
    assert begun(at(*nodes, waves=WAVES, max_parallel=1)) == ["n3"]
    decision = at(*nodes, waves=WAVES)
    assert begun(decision) == ["n3", "n1", "n2"]
    assert "n4" in decision.waiting


def test_a_priority_does_not_bring_a_node_before_one_that_failed() -> None:
    failed = state("n1", view("n1", record(Phase.FAILED)))
    assert begun(at(state("n2", view("n2", priority=1000)), failed, max_parallel=1)) == ["n1"]


def test_nodes_of_the_same_priority_begin_by_their_rank() -> None:
    assert begun(at(state("n1", rank=2), state("n2", rank=0), state("n3", rank=1))) == ["n2", "n3", "n1"]
