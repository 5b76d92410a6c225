"""Closed gates hold nodes, or waves, that have yet to begin."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

from provision.rollout.adapters import Adapters
from provision.rollout.decision.decide import decide
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.decision.snapshot import LONG, Decision, NodeState, RunStep, Snapshot, Write
from provision.rollout.engine import Engine
from provision.rollout.interface.gates import GateState
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import MINUTE, NOON, Clock, FakeCluster, FakeNode, FakeSteps, record, state, view

NOW = NOON + 10 * MINUTE
OPEN = GateState(name="alerts", is_open=True)
CLOSED = GateState(name="alerts", is_open=False, reason="GpuLost fires")
SILENT = replace(CLOSED, is_answered=False, reason="no answer yet")
WAVES = (
    WavePolicy(title="wave 1 of 3", soak=5 * MINUTE),
    WavePolicy(title="wave 2 of 3"),
    WavePolicy(title="wave 3 of 3"),
)
REASON = "gate alerts is closed: GpuLost fires"


def for_waves(gate: GateState) -> GateState:
    return replace(gate, holds_nodes=False)


def at(
    *nodes: NodeState, gate: GateState, still_for: timedelta | None = None, passed: int = 0, **policy: object
) -> Decision:
    since = None if still_for is None else NOW - still_for
    limits = {"max_parallel": 99, "max_unavailable": 99, **policy}
    snapshot = Snapshot(nodes=nodes, began=NOON, still_since=since, gates=(gate,), passed=passed)
    return decide(snapshot, Policy(**limits), NOW)  # type: ignore[arg-type]  # fields of the policy, by name


def new(name: str, wave: int) -> NodeState:
    return state(name, wave=wave)


def done(name: str, wave: int) -> NodeState:
    return state(name, view(name, record(Phase.DONE)), wave=wave, is_disruptive=False)


def begun(decision: Decision) -> list[str]:
    return [action.node for action in decision.actions if isinstance(action, Write)]


def test_an_open_gate_changes_nothing() -> None:
    assert begun(at(state("n1"), gate=OPEN)) == ["n1"]
    assert begun(at(new("n1", 0), gate=for_waves(OPEN), waves=WAVES)) == ["n1"]


def test_no_node_begins_while_a_gate_is_closed_and_those_in_flight_go_on() -> None:
    decision = at(state("n1"), state("n2", view("n2", record(Phase.SWAP))), gate=CLOSED)
    assert decision.actions == (RunStep("n2", Phase.SWAP),)
    assert decision.waiting == {"n1": REASON}


def test_a_closed_gate_is_waited_for_as_long_as_it_takes_unless_nobody_answers() -> None:
    assert not at(state("n1"), gate=CLOSED, still_for=timedelta(days=3)).is_over
    assert not at(state("n1"), gate=SILENT, still_for=timedelta(seconds=LONG - 1)).is_over
    ended = at(state("n1"), gate=SILENT, still_for=timedelta(seconds=LONG))
    assert (ended.is_over, ended.stop) == (True, "gate alerts is closed: no answer yet")


def test_who_does_not_want_to_wait_does_not() -> None:
    assert at(state("n1"), gate=CLOSED, waits=False).stop == REASON
    assert at(new("n1", 0), gate=for_waves(CLOSED), waves=WAVES, waits=False).stop == REASON


def test_a_gate_of_waves_holds_the_first_of_them_too() -> None:
    decision = at(new("n1", 0), new("n2", 1), gate=for_waves(CLOSED), waves=WAVES)
    assert decision.actions == ()
    assert decision.waiting == {"n1": REASON, "n2": REASON}
    assert not decision.is_over


def test_a_wave_that_has_begun_goes_on_while_its_gate_is_closed() -> None:
    decision = at(done("n1", 0), new("n2", 0), new("n3", 1), gate=for_waves(CLOSED), waves=WAVES)
    assert begun(decision) == ["n2"]
    assert decision.waiting["n3"].startswith("waits for wave 1 of 3")


def test_a_wave_does_not_begin_while_a_gate_is_closed_though_the_one_before_has_soaked() -> None:
    nodes = (done("n1", 0), new("n2", 1), new("n3", 2))
    assert begun(at(*nodes, gate=for_waves(OPEN), waves=WAVES)) == ["n2"]
    decision = at(*nodes, gate=for_waves(CLOSED), waves=WAVES)
    assert decision.waiting["n2"] == f"wave 1 of 3 soaks again when its gate opens: {REASON}"
    assert not decision.is_over


def test_a_soak_begins_again_when_a_gate_was_closed_meanwhile() -> None:
    nodes = (done("n1", 0), new("n2", 1), new("n3", 2))
    again = replace(for_waves(OPEN), open_since=NOW - 2 * MINUTE)
    assert at(*nodes, gate=again, waves=WAVES).waiting["n2"] == "wave 1 of 3 soaks until 2026-05-04 12:13:00 UTC"
    long_ago = replace(again, open_since=NOW - 5 * MINUTE)
    assert begun(at(*nodes, gate=long_ago, waves=WAVES)) == ["n2"]


def test_a_wave_whose_soak_was_passed_does_not_soak_again() -> None:
    nodes = (done("n1", 0), done("n2", 1), new("n3", 1), new("n4", 2))
    again = replace(for_waves(OPEN), open_since=NOW)
    assert begun(at(*nodes, gate=again, waves=WAVES, passed=1)) == ["n3"]


def test_a_wave_without_soak_waits_for_the_gate_alone() -> None:
    nodes = (done("n1", 1), new("n2", 2))
    decision = at(*nodes, gate=for_waves(CLOSED), waves=WAVES, passed=1)
    assert decision.waiting == {"n2": REASON}


def test_the_engine_asks_before_each_decision() -> None:
    class Opening:
        def __init__(self) -> None:
            self.looks = 0

        def states(self) -> tuple[GateState, ...]:
            self.looks += 1
            return (CLOSED,) if self.looks < 5 else (OPEN,)

    cluster, clock, gates = FakeCluster({"n1": FakeNode()}), Clock(), Opening()
    began: list[int] = []
    cluster.effect = lambda what: began.append(gates.looks) if what == "write n1 cordon" else None
    adapters = Adapters(cluster=cluster, steps=FakeSteps(cluster), clock=clock, poll_s=0.0005, gates=gates)
    policy = Policy(max_parallel=1, max_unavailable=1)
    engine = Engine(adapters, [state("n1")], policy, observe=lambda _progress: None, cancel=threading.Event())
    clock.is_stopped = lambda: any(node.is_busy for node in engine._nodes.values())
    engine.run()
    assert began == [5]
