"""What a rollout does when its window is closed, or about to be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from provision.declaration.spec.model import Blackout, Rollout, Window
from provision.rollout.decision.decide import decide
from provision.rollout.decision.order.domains import members_of
from provision.rollout.decision.policy import DrainPolicy, Policy, strictest
from provision.rollout.decision.snapshot import Decision, Evict, NodeState, RunStep, Snapshot, Withdraw, Write
from provision.rollout.model import Maintenance, Phase
from tests.provision.rollout.fakes import (
    MINUTE,
    NOON,
    OLD,
    Clock,
    FakeCluster,
    FakeNode,
    FakeSteps,
    make_engine,
    pod,
    record,
    state,
    view,
)

NIGHT = (Window(start="22:00", end="23:00"),)
OPEN = datetime(2026, 5, 4, 22, 5, tzinfo=UTC)
LATE = datetime(2026, 5, 4, 22, 55, tzinfo=UTC)
CLOSED = datetime(2026, 5, 4, 23, 5, tzinfo=UTC)
OPENS = "2026-05-05 22:00 UTC"


def policy(**declared: object) -> Policy:
    return strictest([Rollout(**{"max_parallel": 9, "max_unavailable": 9, "windows": NIGHT, **declared})], 9)  # type: ignore[arg-type]  # keys by name


def at(now: datetime, *nodes: NodeState, still_since: datetime | None = None, **declared: object) -> Decision:
    return decide(Snapshot(nodes=nodes, began=NOON, still_since=still_since), policy(**declared), now)


def flying(phase: Phase, *pods: str, is_leaving: bool = False, **more: object) -> NodeState:
    staying = tuple(pod(name, is_terminating=is_leaving) for name in pods)
    return state("n1", view("n1", record(phase, **{"since": OPEN, **more}), gpu_pods=staying))


def test_a_node_begins_in_the_window() -> None:
    assert [action.node for action in at(OPEN, state("n1")).actions] == ["n1"]


def test_no_node_begins_outside_of_it_and_the_rollout_waits() -> None:
    decision = at(CLOSED, state("n1"), still_since=NOON)
    assert decision.waiting == {"n1": f"waits for its window, which opens {OPENS}"}
    assert (decision.actions, decision.is_over) == ((), False)


def test_a_node_does_not_begin_that_would_not_be_done_in_time() -> None:
    expected = (
        f"a node takes 30 minutes, and the window closes 2026-05-04 23:00 UTC: waits for the one that opens {OPENS}"
    )
    assert at(LATE, state("n1")).waiting == {"n1": expected}
    assert [action.node for action in at(LATE, state("n1"), node_minutes=5).actions] == ["n1"]


def test_how_long_a_node_takes_is_measured_on_those_that_are_done() -> None:
    done = record(Phase.DONE, began=NOON, since=NOON + 4 * MINUTE)
    nodes = [state("n1"), state("n2", view("n2", done), is_disruptive=False)]
    assert [action.node for action in at(LATE, *nodes).actions] == ["n1"]


def test_a_failed_node_is_not_tried_again_outside_of_the_window() -> None:
    failed = state("n1", view("n1", record(Phase.FAILED, failed_in=Phase.VERIFY)))
    assert at(CLOSED, failed).waiting == {"n1": f"waits for its window, which opens {OPENS}"}
    assert at(OPEN, failed).actions != ()


@pytest.mark.parametrize("phase", [Phase.CORDON, Phase.JOBS, Phase.DRAIN])
def test_a_node_whose_pods_have_not_left_goes_back_into_service(phase: Phase) -> None:
    assert at(CLOSED, flying(phase, "web")).actions == (Withdraw("n1", cordoned=False),)
    assert at(CLOSED, flying(phase, "web", was_cordoned=True)).actions == (Withdraw("n1", cordoned=None),)


@pytest.mark.parametrize(
    ("driver", "expected"), [("1.2.3", ()), (OLD, (Withdraw("n1", cordoned=False),))], ids=["another", "the same"]
)
def test_one_of_a_domain_does_not_where_another_serves_with_another_driver(
    driver: str, expected: tuple[Withdraw, ...]
) -> None:
    """The domain was declared half-way, together with a third driver."""
    nodes = tuple(replace(node, domain="rack") for node in (flying(Phase.DRAIN, "web"), state("n2", origin=driver)))
    decision = decide(Snapshot(nodes=nodes, began=NOON, domains=members_of(nodes)), policy(), CLOSED)
    assert tuple(action for action in decision.actions if isinstance(action, Withdraw)) == expected


def test_so_does_one_whose_time_is_up() -> None:
    assert at(CLOSED + timedelta(days=1) - timedelta(hours=2), flying(Phase.DRAIN, "web")).actions == (
        Withdraw("n1", cordoned=False),
    )


def test_a_node_whose_pods_are_leaving_goes_on() -> None:
    decision = at(OPEN + 56 * MINUTE, flying(Phase.DRAIN, "web", is_leaving=True, began=OPEN), drain_timeout_minutes=99)
    assert not [action for action in decision.actions if isinstance(action, Withdraw)]


def test_an_empty_node_goes_on() -> None:
    assert isinstance(at(CLOSED, flying(Phase.DRAIN)).actions[0], Write)


@pytest.mark.parametrize("phase", [Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME])
def test_a_node_whose_gpus_are_out_of_service_is_brought_to_its_end(phase: Phase) -> None:
    node = state("n1", view("n1", record(phase, since=OPEN)), is_disruptive=phase in (Phase.RELEASE, Phase.SWAP))
    assert at(CLOSED, node).actions == (RunStep("n1", phase),)


def test_a_node_that_was_past_the_drain_before_stays_out_of_service_and_its_pods_stay() -> None:
    decision = at(OPEN + 56 * MINUTE, flying(Phase.DRAIN, "web", is_touched=True, since=OPEN + 55 * MINUTE))
    assert decision.actions == ()
    assert decision.waiting["n1"].startswith("no pod is evicted now: ")


def test_inside_the_window_pods_are_evicted() -> None:
    assert isinstance(at(OPEN, flying(Phase.DRAIN, "web")).actions[0], Evict)


def test_a_blackout_closes_without_any_window() -> None:
    off = (Blackout(first="2026-05-04", last="2026-05-06", reason="fair"),)
    decision = at(CLOSED, state("n1"), windows=(), blackouts=off)
    assert decision.waiting == {"n1": "waits until 2026-05-07 00:00 UTC, because of a blackout: fair"}


def test_the_engine_waits_for_the_window_and_then_does_its_work() -> None:
    cluster = FakeCluster({"n1": FakeNode(pods=[pod("web")])})
    clock = Clock(now=datetime(2026, 5, 4, 21, 59, tzinfo=UTC))
    evicted_at: list[datetime] = []
    cluster.effect = lambda what: evicted_at.append(clock.now) if what.startswith("evict") else None
    ending = make_engine(cluster, FakeSteps(cluster), [state("n1")], policy(), clock).run()
    assert cluster.nodes["n1"].record is not None
    assert cluster.nodes["n1"].record.phase is Phase.DONE
    assert evicted_at
    assert all(each.hour == 22 for each in evicted_at)
    assert ending.stop == ""


def test_a_node_that_is_withdrawn_is_as_before_and_begins_again_in_the_next_window() -> None:
    cluster = FakeCluster({"n1": FakeNode(pods=[pod("web")])}, budget=0)
    clock = Clock(now=OPEN, step=timedelta(minutes=2))
    seen: list[tuple[bool, bool]] = []

    def look() -> None:
        node = cluster.nodes["n1"]
        if 1 < clock.now.hour < 22:
            seen.append((node.is_cordoned, node.record is None))
            cluster.budget = 9

    cluster.on_observe = look
    rules = policy(drain_timeout_minutes=120)
    first = state("n1", drain=DrainPolicy(limit=timedelta(hours=2)))
    make_engine(cluster, FakeSteps(cluster), [first], rules, clock).run()
    assert set(seen) == {(False, True)}
    assert cluster.nodes["n1"].record is not None
    assert cluster.nodes["n1"].record.phase is Phase.DONE
    assert cluster.nodes["n1"].record.began.day == 5


def test_a_rollout_that_does_not_wait_ends_with_the_reason() -> None:
    decision = decide(Snapshot(nodes=(state("n1"),), began=NOON), replace(policy(), waits=False), CLOSED)
    assert (decision.is_over, decision.stop) == (True, f"waits for its window, which opens {OPENS}")


def test_nobody_is_told_how_long_a_rollout_takes_that_waits_for_its_window() -> None:
    cluster = FakeCluster({"n1": FakeNode()})
    clock = Clock(now=datetime(2026, 5, 4, 21, 59, tzinfo=UTC))
    make_engine(cluster, FakeSteps(cluster), [state("n1")], policy(), clock).run()
    assert cluster.published[0].is_held
    assert not cluster.published[-1].is_held


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_node_whose_maintenance_is_not_granted_when_the_window_closes_begins_again_in_the_next(
    is_granted: bool,  # noqa: FBT001 - a case of a table
) -> None:
    maintenance = Maintenance(words="is Pending", is_requested=True, is_granted=is_granted)
    seen = view("n1", record(Phase.CORDON, since=CLOSED, is_requested=True), maintenance=maintenance, is_cordoned=False)
    (action,) = at(CLOSED, state("n1", seen)).actions
    assert isinstance(action, Write if is_granted else Withdraw)
