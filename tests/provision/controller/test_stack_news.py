"""What about a stack is news, and how much of it is written."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse, Request
from provision.controller.publication.event_writer import BURST, REFILL_S, Allowance, EventWriter
from provision.controller.publication.news import StackEvent, StackKnown, known_before, known_now, news
from provision.controller.stacks.derive import NodeIs, Observed, Stands
from provision.controller.stacks.status import NodeCounts, NodeTrouble, StackStatus
from tests.provision.rollout.fakes import NOON
from tests.provision.rollout.status.test_derive import standing


def reasons(before: StackKnown, now: StackKnown) -> list[str]:
    return [each.reason for each in news(before, now)]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(StackKnown(), StackKnown(state="AsDeclared"), [], id="a stack that was as declared all along"),
        pytest.param(
            StackKnown(state="Changing"), StackKnown(state="AsDeclared"), ["AsDeclared"], id="all nodes are as declared"
        ),
        pytest.param(StackKnown(), StackKnown(state="Refused", message="a"), ["Refused"], id="refused"),
        pytest.param(
            StackKnown(state="Refused", message="a"), StackKnown(state="Refused", message="a"), [], id="still refused"
        ),
        pytest.param(
            StackKnown(state="Refused", message="a"),
            StackKnown(state="Refused", message="b"),
            ["Refused"],
            id="refused for another reason",
        ),
        pytest.param(
            StackKnown(state="Refused", message="a"), StackKnown(state="Waiting"), ["Accepted"], id="accepted again"
        ),
        pytest.param(StackKnown(), StackKnown(began=NOON), ["RolloutBegan"], id="a rollout begins"),
        pytest.param(
            StackKnown(began=NOON),
            StackKnown(began=NOON, stop="n1 failed"),
            ["RolloutStopped"],
            id="it stops",
        ),
        pytest.param(StackKnown(began=NOON, stop="a"), StackKnown(began=NOON, stop="a"), [], id="it is still stopped"),
        pytest.param(StackKnown(began=NOON), StackKnown(began=NOON, is_over=True), ["RolloutEnded"], id="it ends"),
        pytest.param(
            StackKnown(),
            StackKnown(began=NOON, is_over=True, stop="n1 failed", failed={"n1": "x"}),
            ["RolloutBegan", "RolloutStopped", "NodeFailed", "RolloutEnded"],
            id="it begins, stops and ends between two looks",
        ),
        pytest.param(
            StackKnown(began=NOON, is_over=True, stop="a"),
            StackKnown(began=NOON, is_over=True, stop="a"),
            [],
            id="it is over still",
        ),
        pytest.param(
            StackKnown(began=NOON, is_over=True, stop="a"),
            StackKnown(began=NOON + timedelta(1), is_over=True, stop="a"),
            ["RolloutBegan", "RolloutStopped", "RolloutEnded"],
            id="the next one comes to the same end",
        ),
        pytest.param(
            StackKnown(began=NOON), StackKnown(began=NOON + timedelta(1)), ["RolloutBegan"], id="another one begins"
        ),
        pytest.param(StackKnown(), StackKnown(failed={"n1": "x"}), ["NodeFailed"], id="a node fails"),
        pytest.param(
            StackKnown(failed={"n1": "x"}),
            StackKnown(failed={"n1": "x", "n2": "y"}),
            ["NodeFailed"],
            id="another node fails",
        ),
        pytest.param(StackKnown(), StackKnown(claimed=frozenset({"n1"})), ["ClaimedTwice"], id="two stacks select it"),
    ],
)
def test_what_is_news(before: StackKnown, now: StackKnown, expected: list[str]) -> None:
    assert reasons(before, now) == expected


def test_the_end_of_a_rollout_that_had_stopped_says_so() -> None:
    """It said "1 node being changed", since its round was not known to be over yet."""
    stopped = StackKnown(began=NOON, stop="n1 failed in swap")
    message = "0 of 2 nodes as declared, 1 node being changed"
    (ended,) = news(stopped, replace(stopped, is_over=True, message=message))
    assert ended.message == "the rollout has ended: it had stopped: n1 failed in swap"


def test_what_a_former_leader_has_written_down_is_no_news() -> None:
    trouble = NodeTrouble(node="n1", message="3 of 4 GPUs answer")
    status = StackStatus(state="Degraded", message="n1 failed", troubles=(trouble,), nodes=NodeCounts(failed=1))
    observed = Observed(nodes={"n1": Stands(NodeIs.FAILED, "3 of 4 GPUs answer")})
    assert reasons(known_before(status), known_now(status, observed, None, is_over=False)) == []
    begun = known_now(status, observed, standing(out=("n2",)), is_over=False)
    assert reasons(known_before(status), begun) == ["RolloutBegan"]


def test_a_node_that_waited_when_the_leader_changed_is_news_when_it_fails() -> None:
    troubles = (NodeTrouble(node="n2", message="it broke"), NodeTrouble(node="n1", message="stopped: n2 failed"))
    status = StackStatus(state="Degraded", message="", troubles=troubles, nodes=NodeCounts(failed=1, waiting=1))
    observed = Observed(nodes={name: Stands(NodeIs.FAILED, "it broke") for name in ("n1", "n2")})
    told = [each.message for each in news(known_before(status), known_now(status, observed, None, is_over=False))]
    assert told == ["n1: it broke"]


def test_a_stack_has_few_events_at_once_and_more_later() -> None:
    allowance = Allowance(at_s=0.0)
    assert [allowance.take(0.0) for _number in range(BURST + 1)] == [True] * BURST + [False]
    assert not allowance.take(REFILL_S / 2)
    assert allowance.take(REFILL_S)
    assert not allowance.take(REFILL_S)
    assert sum(allowance.take(1e6) for _number in range(2 * BURST)) == BURST, "it is full after a while, and no more"


class Server:
    """An API server that keeps what it is asked, and answers ``codes`` first."""

    name = "test"

    def __init__(self, *codes: int, message: str = "") -> None:
        self.codes, self.message = list(codes), message
        self.asked: list[Request] = []
        self.hold = threading.Event()
        self.hold.set()

    def send(self, request: Request) -> ApiResponse:
        self.hold.wait(30)
        self.asked.append(request)
        code = self.codes.pop(0) if self.codes else 201
        body = {"message": self.message} if code >= 400 else {}
        return ApiResponse(code=code, headers={}, body=msgspec.json.encode(body))

    def stream(self, request: Request) -> Any:
        raise NotImplementedError


FAILED = StackEvent(reason="NodeFailed", message="n1: it broke", is_warning=True)


def write(server: Server, *events: StackEvent, said: list[str] | None = None) -> None:
    writer = EventWriter(Api(server), ([] if said is None else said).append, now=lambda: NOON)
    for each in events:
        writer.tell("pool", "uid-1", each)
    server.hold.set()
    writer.close()


def test_an_event_is_about_the_stack_and_counts_up() -> None:
    server = Server()
    write(server, FAILED, FAILED, StackEvent(reason="RolloutBegan", message="a rollout has begun"))
    assert [request.method for request in server.asked] == ["POST", "PATCH", "POST"]
    body: Any = server.asked[0].body
    about = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "name": "pool", "uid": "uid-1"}
    assert body["involvedObject"] == about
    assert (body["type"], body["reason"], body["message"], body["count"]) == (
        "Warning",
        "NodeFailed",
        "n1: it broke",
        1,
    )
    counted: Any = server.asked[1].body
    assert counted["count"] == 2
    assert server.asked[1].path.endswith(body["metadata"]["name"])


def test_an_event_that_the_api_server_has_forgotten_is_written_again() -> None:
    server = Server(201, 404)
    write(server, FAILED, FAILED)
    assert [request.method for request in server.asked] == ["POST", "PATCH", "POST"]


def test_a_missing_permission_is_said_once() -> None:
    text = 'events is forbidden: User "eve" cannot create resource "events" in API group "" in the namespace "default"'
    said: list[str] = []
    server = Server(403, 403, message=text)
    server.hold.clear()
    write(server, FAILED, StackEvent(reason="Refused", message="x"), said=said)
    assert len(server.asked) == 1
    assert [line.partition(":")[0] for line in said] == [
        "Events of stacks are not written",
        "1 Events of stacks were not written",
    ]


def test_more_than_a_stack_may_have_is_dropped_and_counted() -> None:
    said: list[str] = []
    server = Server()
    write(server, *(StackEvent(reason="NodeFailed", message=f"n{number}") for number in range(100)), said=said)
    assert len(server.asked) == BURST
    assert said == [f"{100 - BURST} Events of stacks were not written"]
