"""Whole roll-outs in virtual time, and what is kept of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from provision.declaration.spec.model import Blackout, GpuInterface, Rollout, Wave
from provision.report.simulation import render_simulation
from provision.rollout.model import ChangeKind, Phase
from provision.rollout.simulate import play as play_module
from provision.rollout.simulate.many import outcome_of, play_many, waves_of, worst_of
from provision.rollout.simulate.observed import scenario_of
from provision.rollout.simulate.play import play
from provision.rollout.simulate.playback import kind_of
from provision.rollout.simulate.scenario import BudgetModel, Faults, NodeModel, PodModel, Scenario, Spread
from tests.provision.rollout.fakes import record, view
from tests.provision.samples import make_stack

OLD, NEW = "535.261.03", "550.163.01"
START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
EXACT = {
    Phase.DRAIN: Spread(30.0),
    Phase.RELEASE: Spread(5.0),
    Phase.SWAP: Spread(60.0),
    Phase.VERIFY: Spread(20.0),
    Phase.RESUME: Spread(5.0),
    Phase.ROLLBACK: Spread(60.0),
}
OUT_S = 30 + 5 + 60 + 20 + 5  # of a node with a pod


def scenario(nodes: int = 4, **more: object) -> Scenario:
    pods = more.pop("pods", (PodModel(name="web"),))
    models = tuple(NodeModel(name=f"n{number}", driver=OLD, pods=pods) for number in range(1, nodes + 1))  # type: ignore[arg-type]  # a tuple of pods
    fields = {"durations": EXACT, **more}
    return Scenario(nodes=models, target=NEW, start=START, **fields)  # type: ignore[arg-type]  # fields by name


def test_nodes_are_changed_one_after_the_other_in_the_time_that_their_steps_take() -> None:
    played = play(scenario(), 1)
    assert [node.ending for node in played.nodes] == [Phase.DONE] * 4
    assert played.stop == ""
    assert played.most_out == 1
    for node in played.nodes:
        assert node.was_out_s == pytest.approx(OUT_S, abs=5)
    assert played.took_s == pytest.approx(4 * OUT_S, abs=20)


@pytest.mark.parametrize(
    ("before", "target", "which"),
    [("devicePlugin", "dra", ""), ("dra", "both", ", as far as"), ("both", "devicePlugin", ", as far as")],
)
def test_nodes_that_change_over_serve_meanwhile_and_their_pods_stay(before: str, target: str, which: str) -> None:
    models = tuple(NodeModel(name=f"n{number}", driver=before, pods=(PodModel(name="web"),)) for number in range(1, 5))
    change = Scenario(
        nodes=models,
        target=target,
        start=START,
        interface=GpuInterface(target),
        rollout=Rollout(max_parallel=2, max_unavailable=2),
        durations={Phase.SWAP: Spread(15.0), Phase.VERIFY: Spread(5.0)},
    )
    played = play(change, 1)
    assert [node.ending for node in played.nodes] == [Phase.DONE] * 4
    assert {entry.phase for entry in played.entries} == {Phase.SWAP, Phase.VERIFY, Phase.DONE}
    assert played.most_out == 2
    assert played.took_s == pytest.approx(2 * 20, abs=10)
    stopped = play(replace(change, faults=Faults(verify=1.0)), 1)
    assert {node.ending for node in stopped.nodes} <= {Phase.RETURNED, None}
    assert f"giving GPUs by {GpuInterface(before).words}" in " ".join(entry.reason for entry in stopped.entries)
    assert None in {node.ending for node in stopped.nodes}, "the first failure stops it"
    shown = " ".join(str(line) for line in render_simulation(change, played, [outcome_of(played)]))
    assert "withheld until they end are the GPUs of web on n1, web on n2" in shown
    assert f"and 1 more{which}" in shown or f"web on n4{which}" in shown


def test_of_a_fleet_with_its_driver_the_change_of_the_interface_is_played() -> None:
    dra = make_stack(driver={"version": NEW}, plugin={"interface": "dra", "kubernetesApi": "/etc/kubelet.conf"})
    done = record(Phase.DONE, target=NEW, kind=ChangeKind.INTERFACE, interface=GpuInterface.DRA)
    views = {"n1": view("n1", driver=NEW), "n2": view("n2", done), "n3": view("n3", record(Phase.DONE, target=NEW))}
    found = scenario_of(views, dict.fromkeys(views, dra), {}, START)
    assert found.interface is GpuInterface.DRA
    assert {node.name: node.driver for node in found.nodes} == {"n1": "devicePlugin", "n2": "dra", "n3": "devicePlugin"}
    assert [node.ending for node in play(found, 1).nodes] == [Phase.DONE, None, Phase.DONE]
    first = scenario_of({**views, "n1": view("n1", driver=OLD)}, dict.fromkeys(views, dra), {}, START)
    assert (first.interface, first.target) == (None, NEW), "a driver that differs comes first"


def test_the_same_seed_gives_the_same_playback_and_another_one_does_not() -> None:
    usual = scenario(12, durations={}, faults=Faults(swap=0.2, ill_per_day=0.5), rollout=Rollout(max_failures=9))
    assert play(usual, 7) == play(usual, 7)
    assert play(usual, 7).entries != play(usual, 8).entries


def test_waves_follow_one_another_and_soak() -> None:
    rollout = Rollout(max_parallel=4, max_unavailable=4, waves=(Wave(size=1, soak_minutes=10), Wave()))
    canary, rest = waves_of(play(scenario(rollout=rollout), 1))
    assert (canary.nodes, rest.nodes) == (1, 3)
    assert canary.ended_s is not None
    assert rest.began_s is not None
    assert rest.began_s - canary.ended_s == pytest.approx(600, abs=61)


def test_a_node_whose_new_driver_fails_goes_back_and_the_breaker_says_so() -> None:
    played = play(scenario(faults=Faults(verify=1.0)), 1)
    first, *others = played.nodes
    assert first.ending is Phase.RETURNED
    assert all(node.ending is None for node in others)
    assert "n1" in played.stop
    figures = outcome_of(played)
    assert (figures.done, figures.returned, figures.untouched) == (0, 1, 3)


def test_a_node_that_is_lost_does_not_keep_the_others_for_ever() -> None:
    played = play(scenario(faults=Faults(lost=1.0), rollout=Rollout(max_failures=9)), 1)
    assert [node.ending for node in played.nodes] == [Phase.FAILED] * 4
    assert "connection to n1 was lost" in played.nodes[0].reason


def test_a_budget_makes_drains_wait_for_replacements() -> None:
    pods = (PodModel(name="web", budget="shop", grace_s=10.0),)
    rollout = Rollout(max_parallel=2, max_unavailable=2)
    slow = scenario(2, pods=pods, budgets=(BudgetModel("shop", 1, 60.0),), rollout=rollout)
    one, other = play(slow, 1).nodes
    assert one.was_out_s is not None
    assert other.was_out_s is not None
    assert other.was_out_s - one.was_out_s == pytest.approx(70, abs=15)


def test_an_outage_of_the_api_server_is_borne_or_named() -> None:
    short = play(scenario(faults=Faults(away_every_s=100.0, away_for_s=20.0)), 1)
    assert (short.stop, {node.ending for node in short.nodes}) == ("", {Phase.DONE})
    assert "does not answer" in play(scenario(faults=Faults(away_every_s=100.0, away_for_s=90.0)), 1).stop


def test_the_worst_seed_is_the_one_that_leaves_most_undone() -> None:
    risky = scenario(6, faults=Faults(swap=0.15))
    _first, outcomes = play_many(risky, range(1, 9))
    worst = worst_of(outcomes)
    assert [one.seed for one in outcomes] == list(range(1, 9))
    assert worst.untouched == max(one.untouched for one in outcomes) > 0
    assert replace(worst) == outcome_of(play(risky, worst.seed))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        pytest.param("waits for n1: swap and 7 more", "others are changed first: rollout.maxParallel", id="slots"),
        pytest.param(
            "4 of 9 nodes may be unavailable: n1 is in swap, n2 is cordoned and 2 more",
            "4 of 9 nodes may be unavailable: rollout.maxUnavailable",
            id="maxUnavailable",
        ),
        pytest.param("waits for wave 1 of 3 (canary): n1: swap", "waits for wave 1 of 3 (canary)", id="wave"),
        pytest.param(
            "soaks until 2026-05-04 12:00:00 UTC: n1 was just changed",
            "a node that was just changed soaks: rollout.soakMinutes",
            id="soak",
        ),
        pytest.param(
            "wave 1 of 3 (canary) soaks until 2026-05-04 12:00 UTC",
            "wave 1 of 3 (canary) soaks: its soakMinutes in rollout.waves",
            id="soak of a wave",
        ),
        pytest.param(
            "1 of 12 nodes of zone east may be unavailable, and 1 are",
            "1 of 12 nodes of zone east may be unavailable: rollout.zones.maxUnavailable",
            id="zone",
        ),
        pytest.param("n1 failed in verify", "a node failed in verify", id="failed"),
        pytest.param(
            "waits for its window, which opens 2026-05-04 22:00 UTC",
            "waits for its window to open: rollout.windows",
            id="window",
        ),
        pytest.param(
            "waits until 2026-05-04 22:00 UTC, because of a blackout: freeze",
            "waits for the end of a blackout: freeze: rollout.blackouts",
            id="blackout",
        ),
        pytest.param("pod a/b (terminating), pod c/d still on the node", "pods still on the node", id="pods"),
    ],
)
def test_reasons_are_counted_by_their_kind(reason: str, kind: str) -> None:
    assert kind_of(reason, frozenset({"n1", "n2"})) == kind


def test_where_nothing_happens_any_more_the_roll_out_is_told_not_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may begin on any day; every minute is looked at once more."""
    monkeypatch.setattr(play_module, "STILL_S", 3600.0)
    closed = Rollout(blackouts=(Blackout(first="2026-05-01", last="2030-01-01"),))
    played = play(scenario(rollout=closed), 1)
    assert played.stop.startswith("nothing has happened for 0.0416667 days: waits for the end of a blackout")
    assert [node.ending for node in played.nodes] == [None] * 4


def test_while_a_seed_is_played_it_is_told_how_many_nodes_have_come_to_an_end() -> None:
    told: list[tuple[int, int, float]] = []
    play_many(scenario(), [3, 4], lambda *how_far: told.append(how_far))
    assert {seed for seed, _over, _at_s in told} == {3, 4}
    of_one = [over for seed, over, _at_s in told if seed == 3]
    assert of_one == sorted(of_one)
    assert (of_one[0], of_one[-1]) == (0, 4)
