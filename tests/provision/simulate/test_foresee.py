"""How long a planned roll-out is expected to take, from what nodes measured."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import Rollout, Window
from provision.report.console import make_console
from provision.report.planned.rollout import render_rollout, rollout_document
from provision.report.terminal import show
from provision.rollout.decision.calendar import calendar_of
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.decision.prepare import Prepared
from provision.rollout.interface.gates import GateState
from provision.rollout.model import Maintenance, Phase
from provision.rollout.simulate import foresee as foreseen
from provision.rollout.simulate.foresee import foresee
from tests.provision.rollout.fakes import MINUTE, NOON, OLD, pod, record, state, view

if TYPE_CHECKING:
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.standing import Forecast

TOOK = {
    Phase.CORDON: 1.0,
    Phase.DRAIN: 30.0,
    Phase.RELEASE: 5.0,
    Phase.SWAP: 60.0,
    Phase.VERIFY: 20.0,
    Phase.RESUME: 5.0,
}
NODE_S = sum(TOOK.values())


def fleet(nodes: int = 4, took: dict[Phase, float] | None = None, **more: object) -> list[NodeState]:
    """Return nodes that remember an earlier upgrade, to OLD, each with a pod."""
    past = record(Phase.DONE, target=OLD, took=TOOK if took is None else took)
    return [
        state(f"n{number}", view(f"n{number}", past, gpu_pods=(pod(f"web-{number}"),)), **more)
        for number in range(1, nodes + 1)
    ]


def prepared(states: list[NodeState], **more: object) -> Prepared:
    fields = {"states": tuple(states), "rollout": tuple(each.name for each in states), "policy": Policy(), **more}
    return Prepared(**fields)  # type: ignore[arg-type]  # fields by name


def forecast(plan: Prepared) -> Forecast:
    found = foresee(plan, NOON)
    assert found is not None
    return found


def shown(plan: Prepared) -> str:
    stream = io.StringIO()
    show(make_console(stream, width=160), render_rollout(replace(plan, forecast=foresee(plan, NOON)), "cluster test"))
    return stream.getvalue()


def test_nodes_one_after_the_other_take_what_their_steps_took() -> None:
    found = forecast(prepared(fleet()))
    assert found.is_played
    assert found.measured == 4
    assert found.seconds == pytest.approx(4 * NODE_S, rel=0.1)


def test_more_at_once_take_less() -> None:
    found = forecast(prepared(fleet(), policy=Policy(max_parallel=2, max_unavailable=2)))
    assert found.seconds == pytest.approx(2 * NODE_S, rel=0.1)


@pytest.mark.parametrize("took", [{}, {Phase.SWAP: 60.0}], ids=["nothing", "a part of it"])
def test_where_a_phase_was_not_measured_nothing_is_said(took: dict[Phase, float]) -> None:
    plan = prepared(fleet(took=took))
    assert forecast(plan).seconds is None
    assert "expected to take: not measured yet" in shown(plan)
    document = rollout_document(replace(plan, forecast=foresee(plan, NOON)), "cluster test")
    assert document["expected"] == {
        "seconds": None,
        "by": None,
        "measuredNodes": 4 if took else 0,
        "waves": [],
        "notCounted": [],
    }


def test_waves_and_their_soaks_are_counted() -> None:
    waves = WavePolicy(title="wave 1 of 2 (canary)", soak=60 * MINUTE), WavePolicy(title="wave 2 of 2", soak=9 * MINUTE)
    states = [replace(each, wave=0 if each.name == "n1" else 1) for each in fleet()]
    plan = prepared(states, policy=Policy(waves=waves))
    found = forecast(plan)
    first, second = found.waves
    assert (first.nodes, second.nodes, first.soak_s) == (1, 3, 3600)
    assert second.begins_s - first.ends_s == pytest.approx(3600, abs=90)
    assert found.seconds == second.ends_s == pytest.approx(3600 + 4 * NODE_S, rel=0.05)
    text = shown(plan)
    assert "expected to take 1h08m (played with what steps took on 4 nodes)" in text
    assert "wave 1 of 2 (canary): 2m0" in text
    document = rollout_document(replace(plan, forecast=found), "cluster test")["expected"]
    assert isinstance(document, dict)
    assert document["by"] == "simulation"
    assert [wave["nodes"] for wave in document["waves"]] == [1, 3]


def test_a_window_that_opens_later_is_waited_for() -> None:
    window = Window(start="22:00", end="02:00")
    calendar = calendar_of(Rollout(windows=(window,)))
    found = forecast(prepared(fleet(2), policy=Policy(calendar=calendar)))
    assert found.is_played
    assert found.waves[0].begins_s == pytest.approx(timedelta(hours=10).total_seconds(), abs=90)


def test_a_fleet_that_is_too_large_to_be_played_is_reckoned_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseen, "PLAYED", 3)
    plan = prepared(fleet(), policy=Policy(soak=5 * MINUTE))
    found = forecast(plan)
    assert not found.is_played
    assert found.seconds == pytest.approx(4 * NODE_S + 3 * 300)
    assert "(estimated from what steps took on 4 nodes)" in shown(plan)


def test_what_takes_too_long_to_play_is_reckoned_without_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseen, "CPU_S", 0.0)
    calendar = calendar_of(Rollout(windows=(Window(start="22:00", end="02:00"),)))
    found = forecast(prepared(fleet(), policy=Policy(calendar=calendar)))
    assert not found.is_played
    assert found.uncounted == ("windows, blackouts",)
    assert found.seconds == pytest.approx(4 * NODE_S)


def test_one_node_that_lies_about_itself_moves_it_little() -> None:
    liar = replace(fleet()[0], view=view("n1", record(Phase.DONE, target=OLD, took=dict.fromkeys(TOOK, 1e9))))
    found = forecast(prepared([liar, *fleet()[1:]]))
    assert found.seconds == pytest.approx(4 * NODE_S, rel=0.1)


def test_measures_of_this_upgrade_count_before_those_of_earlier_ones() -> None:
    slow = {phase: seconds * 3 for phase, seconds in TOOK.items()}
    done = replace(fleet(1)[0], view=view("n1", record(Phase.DONE, took=slow)), is_disruptive=False)
    rest = fleet()[1:]
    found = forecast(prepared([done, *rest], rollout=tuple(each.name for each in rest)))
    assert found.measured == 1
    assert found.seconds == pytest.approx(3 * 3 * NODE_S, rel=0.1)


def test_a_node_in_flight_counts_as_a_whole_one() -> None:
    flying = replace(fleet(1)[0], view=view("n1", record(Phase.SWAP)), is_disruptive=False)
    found = forecast(prepared([flying, *fleet()[1:]]))
    assert found.is_played
    assert found.seconds == pytest.approx(4 * NODE_S, rel=0.25)


def test_what_is_waited_for_besides_is_named() -> None:
    states = fleet()
    states[0] = replace(states[0], view=replace(states[0].view, jobs=(pod("train"),)))
    states[1] = replace(states[1], view=replace(states[1].view, is_skipped=True))
    states[2] = replace(states[2], view=replace(states[2].view, maintenance=Maintenance(words="is to be requested")))
    waves = WavePolicy(title="wave 1 of 2", is_held=True), WavePolicy(title="wave 2 of 2")
    states = [replace(each, wave=int(each.name > "n2")) for each in states]
    gates = (GateState(name="errors", is_open=False, reason="5 errors"),)
    found = forecast(prepared(states, policy=Policy(waves=waves), gates=gates))
    assert found.uncounted == (
        "jobs that a node waits for",
        "a person who looks at a held wave",
        "how long NodeMaintenances take to be ready",
        "gate errors, which is closed now",
        "a node that does not begin",
    )
    assert found.is_played
    assert [wave.nodes for wave in found.waves] == [1, 2]
    assert found.seconds == pytest.approx(3 * NODE_S, rel=0.1)


def test_without_a_roll_out_nothing_is_expected() -> None:
    assert foresee(prepared(fleet(), rollout=()), NOON) is None
