"""Waves follow one another, each with its proof, and what fails stops no more than it has to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import Wave
from provision.rollout.decision.decide import decide
from provision.rollout.decision.order.membership import with_waves
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.decision.snapshot import Decision, Snapshot, StepResult, Write
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, record, state, view

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.snapshot import NodeState

NOW = NOON + 10 * MINUTE
CANARY = WavePolicy(title="wave 1 of 2 (canary)")
REST = WavePolicy(title="wave 2 of 2")


def at(
    *nodes: NodeState,
    canary: WavePolicy = CANARY,
    still_since: datetime | None = None,
    passed: int = 0,
    **policy: int,
) -> Decision:
    """Return what is decided, with room for all nodes at once."""
    limits = {"max_parallel": 99, "max_unavailable": 99, **policy}
    snapshot = Snapshot(nodes=nodes, began=NOON, still_since=still_since, passed=passed)
    return decide(snapshot, Policy(**limits, waves=(canary, REST)), NOW)  # type: ignore[arg-type]  # limits, by name


def new(name: str, wave: int, **more: object) -> NodeState:
    return state(name, wave=wave, **more)


def done(name: str, wave: int, *, since: datetime = NOON, is_cordoned: bool = False, **more: object) -> NodeState:
    seen = view(name, record(Phase.DONE, since=since), is_cordoned=is_cordoned, **more)
    return state(name, seen, wave=wave, is_disruptive=False)


def failed(name: str, wave: int, **more: object) -> NodeState:
    remembered = record(Phase.FAILED, reason="3 of 4 GPUs answer", failed_in=Phase.VERIFY)
    return state(name, view(name, remembered), wave=wave, **{"has_failed": True, **more})


def begun(decision: Decision) -> list[str]:
    return [action.node for action in decision.actions if isinstance(action, Write)]


def test_the_second_wave_waits_for_the_first() -> None:
    decision = at(new("n1", 1), new("n2", 0), new("n3", 0))
    assert begun(decision) == ["n2", "n3"]
    assert decision.waiting == {"n1": "waits for wave 1 of 2 (canary): n2 and 1 more"}


def test_a_wave_is_not_over_while_one_of_its_nodes_is_out_of_service() -> None:
    flying = state("n1", view("n1", record(Phase.SWAP)), is_busy=True, wave=0)
    decision = at(flying, done("n2", 0), new("n3", 1))
    assert decision.waiting == {"n3": "waits for wave 1 of 2 (canary): n1: swap"}
    assert (decision.passed, decision.is_over) == (0, False)


def test_the_next_wave_follows_when_the_former_is_done_and_healthy() -> None:
    decision = at(done("n1", 0), new("n2", 1))
    assert (begun(decision), decision.passed) == (["n2"], 1)


def test_a_wave_soaks_from_its_last_change() -> None:
    soaking = replace(CANARY, soak=15 * MINUTE)
    decision = at(done("n1", 0), done("n2", 0, since=NOON + 5 * MINUTE), new("n3", 1), canary=soaking)
    assert decision.waiting == {"n3": "wave 1 of 2 (canary) soaks until 2026-05-04 12:20:00 UTC"}
    assert (decision.actions, decision.is_over, decision.passed) == ((), False, 0)
    assert not at(done("n1", 0), new("n3", 1), canary=soaking, still_since=NOON).is_over, "however long it soaks"


@pytest.mark.parametrize(
    ("seen", "reason", "is_over_at_once"),
    [
        pytest.param({"is_ready": False}, "n1 is not ready", False, id="not ready"),
        pytest.param({"is_cordoned": True}, "n1 was cordoned by somebody", True, id="cordoned by a monitor"),
    ],
)
def test_nothing_follows_a_wave_that_is_not_healthy(
    seen: dict[str, bool], reason: str, *, is_over_at_once: bool
) -> None:
    nodes = done("n1", 0, **seen), new("n2", 1)
    decision = at(*nodes)
    told = f"wave 1 of 2 (canary) is not healthy since its change: {reason}"
    assert (decision.actions, decision.waiting) == ((), {"n2": told})
    assert decision.is_over is is_over_at_once
    assert at(*nodes, still_since=NOW - MINUTE).stop == told


def test_a_node_that_was_cordoned_before_its_change_is_healthy() -> None:
    remembered = record(Phase.DONE, was_cordoned=True)
    before = state("n1", view("n1", remembered, is_cordoned=True), wave=0, is_disruptive=False)
    assert begun(at(before, new("n2", 1))) == ["n2"]


def test_a_node_that_falls_ill_after_its_wave_stops_nobody() -> None:
    assert begun(at(done("n1", 0, is_ready=False), new("n2", 1), passed=1)) == ["n2"]


def test_a_wave_that_holds_ends_the_run_and_says_how_to_go_on() -> None:
    decision = at(done("n1", 0), new("n2", 1), canary=replace(CANARY, is_held=True))
    assert decision.is_over
    hint = "look at its nodes, take `gate: hold` away from it, and run the same command again"
    assert decision.stop == f"wave 1 of 2 (canary) is done and holds the others: {hint}"


def test_a_failed_canary_always_stops() -> None:
    decision = at(failed("n1", 0), done("n2", 0), new("n3", 1), max_failures=9)
    why = "n1 failed in verify, in wave 1 of 2 (canary): no node of the first wave may fail"
    assert (decision.actions, decision.stop, decision.is_over) == ((), why, True)
    assert decision.waiting == {"n3": f"stopped: {why}"}


def test_the_first_wave_that_has_a_node_is_the_canary() -> None:
    alone = at(failed("n2", 1), new("n3", 1), max_failures=1)
    assert begun(alone) == ["n3"], "without a wave that follows there is no canary"


def test_a_canary_that_nobody_could_change_proves_nothing() -> None:
    decision = at(new("n1", 0, obstacle="its driver is not staged"), new("n2", 1), still_since=NOW - MINUTE)
    why = "no node of wave 1 of 2 (canary) could be changed: n1: its driver is not staged"
    assert (decision.actions, decision.stop) == ((), why)
    assert begun(at(new("n1", 0, obstacle="no route"), done("n3", 0), new("n2", 1))) == ["n2"]


def test_a_canary_that_failed_before_and_cannot_be_asked_keeps_the_others_waiting() -> None:
    nodes = failed("n1", 0, has_failed=False, obstacle="no route"), done("n3", 0), new("n2", 1)
    reason = "n1 of wave 1 of 2 (canary) has failed, and cannot be tried again: no route"
    assert at(*nodes).waiting == {"n1": "no route", "n2": reason}


def test_a_later_wave_goes_on_without_nodes_that_cannot_be_changed() -> None:
    assert begun(at(done("n1", 0), new("n2", 1, obstacle="no route"), new("n3", 1))) == ["n3"]


def test_a_node_that_failed_before_waits_for_no_wave() -> None:
    retried = failed("n1", 1, has_failed=False)
    assert begun(at(retried, new("n2", 0), new("n3", 1))) == ["n1", "n2"]


def test_failures_within_the_limit_stop_nobody_and_take_nothing_from_the_others() -> None:
    nodes = failed("n1", 1), failed("n2", 1), new("n3", 1), new("n4", 1)
    decision = at(done("n0", 0), *nodes, max_failures=2, max_unavailable=1)
    assert begun(decision) == ["n3"]
    assert decision.waiting == {"n4": "1 of 5 nodes may be unavailable: n3 is in cordon"}


def test_one_failure_too_many_stops_and_names_them() -> None:
    step = StepResult(phase=Phase.SWAP, ended=NOW, failure="no luck")
    failing = state("n2", view("n2", record(Phase.SWAP)), step=step, wave=1)
    decision = at(done("n0", 0), failed("n1", 1), failing, new("n3", 1), max_failures=1)
    assert begun(decision) == ["n2"], "only that it failed is written"
    assert decision.stop == "n1 failed in verify, n2 failed in swap, and maxFailures is 1"


def test_a_rollout_with_failures_that_are_allowed_comes_to_its_end() -> None:
    decision = at(done("n0", 0), failed("n1", 1), done("n2", 1), max_failures=1)
    assert (decision.is_over, decision.stop) == (True, None)


def members(*waves: Wave, groups: dict[str, tuple[str, ...]] | None = None, **states: NodeState) -> list[int | None]:
    return [each.wave for each in with_waves(tuple(states.values()), waves, groups or {})]


def changed(name: str, origin: str = OLD) -> NodeState:
    seen = view(name, record(Phase.DONE, origin=origin))
    return state(name, seen, origin=NEW, is_disruptive=False, is_as_declared=True)


def test_waves_take_nodes_by_number_by_percentage_and_by_name() -> None:
    four = {name: state(name) for name in ("n1", "n2", "n3", "n4")}
    assert members(Wave(size=1), Wave(size="50%"), Wave(), **four) == [0, 1, 1, 2]
    assert members(Wave(hosts=("n3",)), Wave(groups=("a",)), Wave(), groups={"n2": ("a",)}, **four) == [2, 1, 0, 2]
    assert members(Wave(groups=("a",), size="10%"), Wave(), groups=dict.fromkeys(four, ("a",)), **four) == [0, 1, 1, 1]


def test_nodes_that_need_no_change_are_in_no_wave() -> None:
    same = state("n1", is_disruptive=False, is_as_declared=True)
    assert members(Wave(size=1), Wave(), n1=same, n2=state("n2"), n3=state("n3")) == [None, 0, 1]


def test_nodes_that_were_changed_before_a_crash_stay_in_their_wave() -> None:
    assert members(Wave(size=2), Wave(), n1=changed("n1"), n2=state("n2"), n3=state("n3")) == [0, 0, 1]


def test_a_change_that_keeps_the_version_begins_with_a_canary_of_its_own() -> None:
    setting = state("n2", origin=NEW), state("n3", origin=NEW)
    assert members(Wave(size=1), Wave(), n1=changed("n1"), n2=setting[0], n3=setting[1]) == [None, 0, 1]


def test_a_canary_by_number_is_a_node_that_can_be_changed() -> None:
    lost = state("n1", is_disruptive=False, obstacle="no route")
    assert members(Wave(size=1), Wave(), n1=lost, n2=state("n2"), n3=state("n3")) == [1, 0, 1]
    assert members(Wave(hosts=("n1",)), Wave(), n1=lost, n2=state("n2")) == [0, 1]
