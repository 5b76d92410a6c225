"""What nodes wait for that lies with others, and when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from provision.cluster.objects import Condition, Metadata, NodeSpec, NodeStatus
from provision.controller.attempts import FIRST_S, LONGEST_S, Attempts
from provision.controller.blockers import Blockers, Change, blockers_of, change
from provision.controller.nodes import see
from provision.rollout.model import Phase
from provision.rollout.pause import Pause
from tests.provision.controller.samples import node, record, seen

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

KURED = "weave.works/kured-reboot-in-progress"
FAILED = record(Phase.FAILED)


def blockers(*nodes: SeenNode, generation: int = 1, pause: Pause | None = None) -> Blockers:
    return blockers_of(generation, pause, {each.name: each for each in nodes})


@pytest.mark.parametrize(
    ("former", "now", "expected"),
    [
        pytest.param(blockers(seen()), blockers(seen()), Change.NOTHING, id="nothing"),
        pytest.param(blockers(seen()), blockers(seen(), generation=2), Change.BY_SOMEBODY, id="the stack"),
        pytest.param(blockers(seen(record=FAILED)), blockers(seen()), Change.BY_SOMEBODY, id="a record is taken away"),
        pytest.param(
            blockers(seen(record=FAILED)),
            blockers(seen(record=record(Phase.DONE))),
            Change.BY_SOMEBODY,
            id="what failed has succeeded",
        ),
        pytest.param(
            blockers(seen(record=FAILED)),
            blockers(seen(record=record(Phase.FAILED, retry=True))),
            Change.NOTHING,
            id="a retry is asked for",
        ),
        pytest.param(
            blockers(seen(record=FAILED)),
            blockers(seen(record=record(Phase.SWAP))),
            Change.NOTHING,
            id="retried",
        ),
        pytest.param(blockers(seen(record=FAILED)), blockers(), Change.BY_SOMEBODY, id="what failed has left"),
        pytest.param(blockers(seen()), blockers(seen(record=FAILED)), Change.NOTHING, id="one more has failed"),
        pytest.param(blockers(seen()), blockers(seen(is_skipped=True)), Change.BY_SOMEBODY, id="one is skipped"),
        pytest.param(blockers(seen(is_skipped=True)), blockers(seen()), Change.BY_SOMEBODY, id="the skip has ended"),
        pytest.param(blockers(pause=Pause(by="ada")), blockers(), Change.BY_SOMEBODY, id="resumed"),
        pytest.param(blockers(), blockers(pause=Pause(by="ada")), Change.NOTHING, id="paused"),
        pytest.param(blockers(seen(is_out=True)), blockers(seen()), Change.BY_ITSELF, id="one is back"),
        pytest.param(blockers(seen()), blockers(seen(is_out=True)), Change.NOTHING, id="one is out"),
        pytest.param(blockers(), blockers(seen("another")), Change.NOTHING, id="one has joined"),
    ],
)
def test_what_is_over_for_those_who_wait(former: Blockers, now: Blockers, expected: Change) -> None:
    assert change(former, now) is expected


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


def test_what_comes_and_goes_is_worth_a_try_ever_more_rarely() -> None:
    attempts, now, pauses = Attempts(), 0.0, []
    out, back = blockers(seen(is_out=True)), blockers(seen())
    for _number in range(8):
        attempts.waited("n1", "key", "one is out", now, out)
        assert not attempts.is_due("n1", "key", now)
        attempts.requeue_waiting(out, now)
        assert not attempts.is_due("n1", "key", now), "it is as it was"
        waited_s = 0.0
        while not attempts.is_due("n1", "key", now + waited_s):
            attempts.requeue_waiting(back, now + waited_s)
            waited_s += 0 if attempts.is_due("n1", "key", now + waited_s) else FIRST_S
        pauses.append(waited_s)
        now += waited_s
    assert pauses[:4] == [0, FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-1] == LONGEST_S


def test_what_somebody_has_said_is_worth_a_try_at_once_every_time() -> None:
    attempts = Attempts()
    for generation in range(4):
        attempts.waited("n1", "key", "it stopped", 10.0, blockers(generation=generation))
        attempts.requeue_waiting(blockers(generation=generation + 1), 10.0)
        assert attempts.is_due("n1", "key", 10.0)
        assert attempts.reason("n1", "key") == "it stopped"


def test_what_has_failed_by_itself_keeps_its_time() -> None:
    attempts = Attempts()
    attempts.failed("n1", "key", "it is not reached", 0.0)
    attempts.requeue_waiting(blockers(generation=9), 0.0)
    assert not attempts.is_due("n1", "key", FIRST_S - 1)
    assert not attempts.has_waiting
