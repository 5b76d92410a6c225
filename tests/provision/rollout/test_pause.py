"""While somebody has paused it, what was begun is finished and nothing else begins."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from provision.apply.model import Note, Status
from provision.rollout.decision.decide import decide
from provision.rollout.decision.policy import Policy
from provision.rollout.decision.prepare import Prepared, only_in_flight
from provision.rollout.decision.snapshot import Decision, NodeState, Snapshot, Write
from provision.rollout.interface.pause import Pause
from provision.rollout.interface.progress import NodeWaits
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, FakeSteps, record, state, view
from tests.provision.rollout.process import Rollout, fleet, statuses

PAUSE = Pause(by="ada@laptop", since=NOON, reason="disk alarms")
REASON = "paused by ada@laptop since 2026-05-04 12:00:00 UTC: disk alarms; `grapnel resume` ends it"
FLYING = state("n1", view("n1", record(Phase.CORDON)))
FAILED = state("n1", view("n1", record(Phase.FAILED, failed_in=Phase.VERIFY)), has_failed=True)


def at(*nodes: NodeState, **policy: object) -> Decision:
    limits = {"max_parallel": 9, "max_unavailable": 9, **policy}
    snapshot = Snapshot(nodes=nodes, began=NOON, pause=PAUSE)
    return decide(snapshot, Policy(**limits), NOON + MINUTE)  # type: ignore[arg-type]  # limits, by name


def test_no_node_begins_and_each_says_who_since_when_why_and_what_ends_it() -> None:
    failed_before = state("n3", view("n3", record(Phase.FAILED)))
    found = at(state("n1"), state("n2"), failed_before)

    assert found.actions == ()
    assert found.waiting == dict.fromkeys(("n1", "n2", "n3"), REASON)
    assert (found.is_over, found.stop) == (False, None), "it waits for a person"


def test_what_is_in_flight_goes_on() -> None:
    found = at(FLYING, state("n2"))

    (action,) = found.actions
    assert isinstance(action, Write)
    assert (action.node, action.record.phase) == ("n1", Phase.DRAIN)
    assert found.waiting == {"n2": REASON}


def test_nothing_that_waits_is_nothing_to_wait_for() -> None:
    assert at(state("n1", view("n1", record(Phase.DONE)), is_disruptive=False)).is_over


def test_a_failure_ends_it_all_the_same() -> None:
    found = at(FAILED, state("n2"))

    assert found.is_over
    assert found.waiting["n2"] == "stopped: n1 failed in verify"


@pytest.mark.parametrize(
    ("pause", "words"),
    [
        (Pause(by="somebody"), "by somebody"),
        (Pause(by="ada", reason="why"), "by ada: why"),
        (Pause(by="ada", since=NOON), "by ada since 2026-05-04 12:00:00 UTC"),
    ],
)
def test_what_is_not_known_is_left_out(pause: Pause, words: str) -> None:
    assert str(pause) == words


def test_a_running_engine_finishes_waits_and_goes_on_when_it_is_resumed() -> None:
    cluster = fleet("n1", "n2")
    looks_while_paused = []

    def pause_in_the_swap(_node: str, phase: Phase, _cancel: threading.Event) -> None:
        if phase is Phase.SWAP and cluster.pause is None and not looks_while_paused:
            cluster.pause = PAUSE

    def resume_after_a_while() -> None:
        if cluster.pause is not None and cluster.nodes["n1"].driver == NEW and not cluster.nodes["n1"].is_cordoned:
            looks_while_paused.append(cluster.nodes["n2"].is_cordoned)
            if len(looks_while_paused) == 20:
                cluster.pause = None

    cluster.on_observe = resume_after_a_while
    rollout = Rollout(cluster, steps=FakeSteps(cluster, meet=pause_in_the_swap))

    assert statuses(rollout.run()) == ["converged", "converged"]
    assert looks_while_paused == [False] * 20
    assert NodeWaits("n2", REASON) in rollout.seen
    notes = [one.text for one in rollout.seen if isinstance(one, Note)]
    assert notes == [
        f"{REASON}: nodes in flight are finished, and no other begins",
        "resumed: further nodes may begin",
    ]


def test_who_is_cancelled_while_paused_ends(  # such as by Ctrl-C
) -> None:
    cluster, cancel = fleet("n1"), threading.Event()
    cluster.pause = PAUSE
    looks: list[None] = []

    def interrupt() -> None:
        looks.append(None)
        if len(looks) == 5:
            cancel.set()

    cluster.on_observe = interrupt

    assert statuses(Rollout(cluster, cancel=cancel).run()) == ["canceled"]
    assert cluster.writes == []


def test_a_pause_that_was_known_when_it_was_started_does_not_hold_it_up_but_a_later_one_does() -> None:
    cluster, cancel = fleet("n1", "n2"), threading.Event()
    cluster.pause = PAUSE
    rollout = Rollout(cluster, Policy(despite=PAUSE), cancel=cancel)
    looks: list[None] = []

    def pause_again() -> None:
        if cluster.nodes["n1"].driver == NEW and cluster.pause == PAUSE:
            cluster.pause = replace(PAUSE, since=NOON + MINUTE)
        if cluster.pause != PAUSE and not cluster.nodes["n1"].is_cordoned:
            looks.append(None)
            if len(looks) == 5:
                cancel.set()

    cluster.on_observe = pause_again
    rollout.run()

    assert cluster.nodes["n1"].driver == NEW
    assert cluster.nodes["n2"].driver == OLD


def test_an_apply_that_starts_meanwhile_is_about_what_is_out_of_service() -> None:
    prepared = Prepared(
        states=(FLYING, state("n2"), state("n3")),
        rollout=("n1", "n2"),
        in_place=("n3",),
        staging=("n1", "n2"),
        runtime_classes=("nvidia",),
    )

    left = only_in_flight(prepared, PAUSE)

    assert (left.todo, left.staging, left.runtime_classes) == (("n1",), ("n1",), ())
    assert {name: (one.status, one.message) for name, one in left.refusals.items()} == dict.fromkeys(
        ("n2", "n3"), (Status.WAITING, REASON)
    )
    assert [one.wants_to_begin for one in left.states] == [False, False, False], "nor when it is resumed meanwhile"
