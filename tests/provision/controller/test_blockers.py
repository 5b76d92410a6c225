"""What nodes wait for that lies with others, and when it is over."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from provision.cluster.kubernetes.objects.core import Condition, Metadata
from provision.cluster.kubernetes.objects.nodes import NodeSpec, NodeStatus
from provision.cluster.record import encode_record
from provision.controller.decision.attempts import FIRST_S, LONGEST_S, Attempts
from provision.controller.decision.blockers import LATE_S, Blockers, blockers_of, is_lifted, returned
from provision.controller.nodes import NodeBook, see
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from tests.provision.controller.samples import node, record, seen

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

KURED = "weave.works/kured-reboot-in-progress"
FAILED = record(Phase.FAILED)


NOTHING, LIFTED = (False, ""), (True, "")


def blockers(*nodes: SeenNode, generation: int = 1, pause: Pause | None = None, at: float = 0.0) -> Blockers:
    return blockers_of(generation, pause, {each.name: each for each in nodes}, at)


@pytest.mark.parametrize(
    ("former", "now", "expected"),
    [
        pytest.param(blockers(seen()), blockers(seen()), NOTHING, id="nothing"),
        pytest.param(blockers(seen()), blockers(seen(), generation=2), LIFTED, id="the stack"),
        pytest.param(blockers(seen(record=FAILED)), blockers(seen()), LIFTED, id="a record is taken away"),
        pytest.param(
            blockers(seen(record=FAILED)),
            blockers(seen(record=record(Phase.DONE))),
            LIFTED,
            id="what failed has succeeded",
        ),
        pytest.param(
            blockers(seen(record=FAILED)),
            blockers(seen(record=record(Phase.FAILED, retry=True))),
            NOTHING,
            id="a retry is asked for",
        ),
        pytest.param(
            blockers(seen(record=FAILED)),
            blockers(seen(record=record(Phase.SWAP))),
            NOTHING,
            id="retried",
        ),
        pytest.param(blockers(seen(record=FAILED)), blockers(), LIFTED, id="what failed has left"),
        pytest.param(blockers(seen()), blockers(seen(record=FAILED)), NOTHING, id="one more has failed"),
        pytest.param(blockers(seen()), blockers(seen(is_skipped=True)), LIFTED, id="one is skipped"),
        pytest.param(blockers(seen(is_skipped=True)), blockers(seen()), LIFTED, id="the skip has ended"),
        pytest.param(blockers(pause=Pause(by="ada")), blockers(), LIFTED, id="resumed"),
        pytest.param(blockers(), blockers(pause=Pause(by="ada")), NOTHING, id="paused"),
        pytest.param(blockers(seen(is_out=True)), blockers(seen()), (False, "n1"), id="one is back"),
        pytest.param(blockers(seen()), blockers(seen(is_out=True)), NOTHING, id="one is out"),
        pytest.param(blockers(), blockers(seen("another")), NOTHING, id="one has joined"),
        pytest.param(blockers(seen(is_out=True)), blockers(), (False, "n1"), id="one that was out has left"),
        pytest.param(
            blockers(seen(is_out=True, record=record(Phase.SWAP))),
            blockers(seen(record=record(Phase.SWAP))),
            NOTHING,
            id="one was out for its own upgrade",
        ),
        pytest.param(
            blockers(seen(back_s=99.0), at=100.0),
            blockers(seen(back_s=99.0), at=100.0),
            (False, "n1"),
            id="one was back when the round had looked for the last time",
        ),
        pytest.param(
            blockers(seen(back_s=99.0), at=100.0),
            blockers(seen(back_s=99.0, is_out=True), at=101.0),
            NOTHING,
            id="it is out again",
        ),
        pytest.param(
            blockers(seen(back_s=99.0 - LATE_S), at=100.0),
            blockers(seen(back_s=99.0 - LATE_S), at=100.0),
            NOTHING,
            id="one was back long before",
        ),
    ],
)
def test_what_is_over_for_those_who_wait(former: Blockers, now: Blockers, expected: tuple[bool, str]) -> None:
    assert (is_lifted(former, now), ",".join(returned(former, now))) == expected


@pytest.mark.parametrize(
    "what",
    [
        pytest.param({"spec": NodeSpec(unschedulable=True)}, id="cordoned"),
        pytest.param({"status": NodeStatus(conditions=(Condition(type="Ready", status="False"),))}, id="not ready"),
        pytest.param({"metadata": Metadata(name="n1", annotations={KURED: "true"})}, id="another tool is at it"),
    ],
)
def test_a_node_is_out_where_it_counts_against_budgets(what: dict[str, Any]) -> None:
    assert not see(node()).is_out
    assert see(replace(node(), **what)).is_out


def came_back(name: str, at: float) -> Blockers:
    """Return what there is when a node that was out is back since a moment."""
    return blockers(seen(name, back_s=at), at=at)


def test_what_comes_and_goes_is_worth_a_try_ever_more_rarely() -> None:
    attempts, now, pauses = Attempts(), 1000.0, []
    for _number in range(8):
        out = blockers(seen(is_out=True), at=now)
        attempts.waited("n1", "key", "one is out", now, out)
        assert not attempts.is_due("n1", "key", now)
        attempts.requeue_waiting(replace_time(out, now))
        assert not attempts.is_due("n1", "key", now), "it is as it was"
        back, waited_s = came_back("n1", now + 1), 1.0
        while not attempts.is_due("n1", "key", now + waited_s):
            attempts.requeue_waiting(replace_time(back, now + waited_s))
            waited_s += 0 if attempts.is_due("n1", "key", now + waited_s) else FIRST_S
        pauses.append(waited_s - 1)
        now += waited_s
    assert pauses[:4] == [0, FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-1] == LONGEST_S


def replace_time(given: Blockers, now: float) -> Blockers:
    return dataclasses.replace(given, noted_s=now)


def test_a_node_that_is_back_for_the_first_time_is_noticed_at_once_whatever_was_waited_for_before() -> None:
    """Each wait of a node, for whatever reason, had doubled the time until a later uncordon was noticed."""
    attempts, now = Attempts(), 1000.0
    for generation in range(5):
        attempts.waited("n1", "key", "it stopped", now, blockers(generation=generation, at=now))
        attempts.requeue_waiting(blockers(generation=generation + 1, at=now))
        assert attempts.is_due("n1", "key", now)
    attempts.waited("n1", "key", "n2 is out", now, blockers(seen("n2", is_out=True), at=now))
    attempts.requeue_waiting(came_back("n2", now))
    assert attempts.is_due("n1", "key", now)
    attempts.waited("n1", "key", "n3 is out", now, blockers(seen("n3", is_out=True), seen("n2", back_s=now), at=now))
    attempts.requeue_waiting(blockers(seen("n2", back_s=now), seen("n3", back_s=now), at=now))
    assert attempts.is_due("n1", "key", now), "that n2 came and went is nothing about n3"


def test_a_node_that_is_back_while_the_round_ends_makes_others_due_once() -> None:
    """The round had not seen it, and what was compared afterwards had nobody out: nothing changed for half an hour."""
    attempts, now = Attempts(), 1000.0
    for expected in (True, False):
        met = blockers(seen("n2", back_s=999.0), at=now)
        attempts.waited("n1", "key", "n2 is out", now, met)
        for later_s in (0.0, FIRST_S, LONGEST_S - 1):
            attempts.requeue_waiting(replace_time(met, now + later_s))
        assert attempts.is_due("n1", "key", now + LONGEST_S - 1) is expected
        now += 1


def test_the_book_knows_when_a_node_was_back_other_than_by_its_own_upgrade() -> None:
    times, versions = iter([10.0, 20.0]), itertools.count(1)
    book = NodeBook(lambda: None, lambda: next(times))

    def put(*, is_cordoned: bool, **annotations: str) -> float | None:
        book.put(replace(node(version=next(versions), **annotations), spec=NodeSpec(unschedulable=is_cordoned)))
        found = book.get("n1")
        assert found is not None
        return found.back_s

    assert put(is_cordoned=True) is None
    assert put(is_cordoned=False) == 10.0
    flying = encode_record(record(Phase.SWAP))
    assert put(is_cordoned=True, upgrade=flying) == 10.0
    assert put(is_cordoned=False, upgrade=encode_record(record(Phase.DONE))) == 10.0
    assert put(is_cordoned=True) == 10.0
    assert put(is_cordoned=False) == 20.0


def test_what_somebody_has_said_is_worth_a_try_at_once_every_time() -> None:
    attempts = Attempts()
    for generation in range(4):
        attempts.waited("n1", "key", "it stopped", 10.0, blockers(generation=generation, at=10.0))
        attempts.requeue_waiting(blockers(generation=generation + 1, at=10.0))
        assert attempts.is_due("n1", "key", 10.0)
        assert attempts.reason("n1", "key") == "it stopped"


def test_what_has_failed_by_itself_keeps_its_time() -> None:
    attempts = Attempts()
    attempts.failed("n1", "key", "it is not reached", 0.0)
    attempts.requeue_waiting(blockers(generation=9))
    assert not attempts.is_due("n1", "key", FIRST_S - 1)
    assert not attempts.has_waiting
