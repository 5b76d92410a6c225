"""What becomes of an EvictionRequest; on a real API server: ``test_eviction_requests_itself``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.pods.evictions.objects import (
    Answer,
    EvictionRequest,
    GivenUp,
    Progress,
    Unanswered,
    UnderWay,
    read_answer,
)
from provision.cluster.kubernetes.pods.evictions.requests import EvictionRequests
from provision.rollout.interface.cluster import Eviction, EvictionOutcome
from provision.rollout.model import GpuPod
from tests.provision.cluster.fakes import Clock, answer, refusal

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import ApiResponse as Answered
    from provision.cluster.kubernetes.api.exchange import Request

NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
POD = GpuPod(namespace="ml", name="web", uid="u1", is_terminating=False, is_mirror_or_daemon=False)
OTHER = GpuPod(namespace="ml", name="web-2", uid="u2", is_terminating=False, is_mirror_or_daemon=False)
REQUESTED = Eviction(outcome=EvictionOutcome.BLOCKED, reason="its eviction is requested")
BASE = "/apis/lifecycle.k8s.io/v1alpha1"
FORBIDDEN = (
    'evictionrequests.lifecycle.k8s.io is forbidden: User "ada" cannot create resource "evictionrequests" in API '
    'group "lifecycle.k8s.io" in the namespace "ml"'
)


def request(*, age_s: int = 0, observed: int | None = None, failed: bool = False) -> EvictionRequest:
    conditions = [{"type": "Failed", "status": "True" if failed else "False"}]
    return msgspec.convert(
        {
            "metadata": {"name": "grapnel-u1", "creationTimestamp": (NOW - timedelta(seconds=age_s)).isoformat()},
            "status": {"observedGeneration": observed, "conditions": conditions},
        },
        EvictionRequest,
    )


def progress(*, silent: timedelta, started: timedelta | None = None, **says: object) -> Progress:
    sign = {"startTime": (NOW - (started or silent)).isoformat(), "heartbeatTime": (NOW - silent).isoformat()}
    status = {
        "targetResponders": [{"name": "a.example/b", "state": "Completed"}, {"name": "c.example/d", "state": "Active"}],
        "responders": [{"name": "a.example/b", "message": "done"}, {"name": "c.example/d"} | sign | says],
    }
    return msgspec.convert({"status": status}, Progress)


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("asked", "found", "expected"),
    [
        pytest.param(request(), None, UnderWay("its eviction is requested"), id="just made"),
        pytest.param(request(age_s=30), None, Unanswered(), id="nothing has looked at it for half a minute"),
        pytest.param(
            request(age_s=3600, observed=1),
            None,
            UnderWay("its eviction is requested"),
            id="something has looked at it, and no responder began",
        ),
        pytest.param(
            request(age_s=60, observed=1),
            progress(silent=MINUTE, message="moves\n3 of 8", expectedCompletionTime="2026-11-23T10:00:00Z"),
            UnderWay(
                "its eviction is requested, and c.example/d is at it, expected until 2026-11-23 10:00:00 UTC: "
                "moves 3 of 8"
            ),
            id="a responder is at it",
        ),
        pytest.param(
            request(age_s=60, observed=1),
            progress(silent=MINUTE, message="x" * 4000),
            UnderWay(f"its eviction is requested, and c.example/d is at it: {'x' * 200}"),
            id="a responder that says too much",
        ),
        pytest.param(
            request(age_s=9000, observed=1),
            progress(silent=21 * MINUTE),
            UnderWay("its eviction is requested, and c.example/d is at it"),
            id="its deadline has just passed: the next one is about to have its turn",
        ),
        pytest.param(
            request(age_s=9000, observed=1),
            progress(silent=23 * MINUTE),
            GivenUp(),
            id="its deadline has passed, and nobody has given its turn away",
        ),
        pytest.param(request(observed=1, failed=True), progress(silent=MINUTE), GivenUp(), id="it has failed"),
    ],
)
def test_a_request_is(asked: EvictionRequest, found: Progress | None, expected: Answer) -> None:
    assert read_answer(asked, found, NOW) == expected


class Server:
    """Serves EvictionRequests on which nothing acts, at a time of its own."""

    name = "cluster x"

    def __init__(self, *, is_served: bool = True, refuses: Answered | None = None) -> None:
        self.now = NOW
        self.stored: dict[str, dict[str, Any]] = {}
        self.sent: list[str] = []
        self.is_served, self.refuses = is_served, refuses

    def send(self, sent: Request) -> Answered:
        self.sent.append(f"{sent.method} {sent.path}")
        date = {"Date": format_datetime(self.now, usegmt=True)}
        if sent.path == BASE:
            resources = {"resources": [{"name": "evictions"}, {"name": "evictionrequests"}]}
            return answer(200, resources, date) if self.is_served else refusal(404, headers=date)
        if sent.method == "POST":
            assert sent.body is not None
            if self.refuses is not None:
                return self.refuses
            meta = {**sent.body["metadata"], "creationTimestamp": self.now.isoformat()}
            self.stored[meta["name"]] = {**sent.body, "metadata": meta}
            return answer(201, self.stored[meta["name"]], date)
        if sent.method == "DELETE":
            del self.stored[sent.path.rpartition("/")[2]]
            return answer(200, {}, date)
        found = list(self.stored.values()) if sent.path.endswith("evictionrequests") else []
        return answer(200, {"items": found}, date)


def asking(server: Server, clock: Clock) -> EvictionRequests:
    api = Api(server, sleep=clock.sleep, clock=clock)  # type: ignore[arg-type] # no watch is asked for
    return EvictionRequests(api, api, is_used=True, clock=clock)


def later(server: Server, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    server.now += timedelta(seconds=seconds)


def test_where_nothing_answers_the_eviction_api_is_used_and_no_other_pod_waits() -> None:
    server, clock = Server(), Clock()
    requests = asking(server, clock)
    assert (requests.ask(POD), requests.ask(OTHER)) == (REQUESTED, REQUESTED)

    later(server, clock, 29)
    assert requests.ask(POD) == REQUESTED
    later(server, clock, 1)

    assert requests.ask(POD) is None
    assert requests.ask(OTHER) is None
    requests.settle(lambda _uid: True)
    assert server.stored == {}
    third = GpuPod(namespace="ml", name="web-3", uid="u3", is_terminating=False, is_mirror_or_daemon=False)
    assert requests.ask(third) is None
    assert server.stored == {}


def test_a_process_that_follows_waits_for_the_rest_of_the_time_only() -> None:
    server, clock = Server(), Clock()
    asking(server, clock).ask(POD)
    later(server, clock, 31)

    assert asking(server, clock).ask(POD) is None

    assert server.stored == {}


def test_what_asks_often_looks_seldom() -> None:
    server, clock = Server(), Clock()
    requests = asking(server, clock)

    for _ in range(100):
        requests.ask(POD)

    assert server.sent == [f"GET {BASE}", f"GET {BASE}/evictionrequests", f"POST {BASE}/namespaces/ml/evictionrequests"]


def test_where_they_are_not_served_that_is_asked_once() -> None:
    server, clock = Server(is_served=False), Clock()
    requests = asking(server, clock)

    assert [requests.ask(POD), requests.ask(OTHER)] == [None, None]
    requests.settle(lambda _uid: False)

    assert server.sent == [f"GET {BASE}"]


@pytest.mark.parametrize(
    ("refused", "is_asked_for_the_next"),
    [
        pytest.param(refusal(422, "pods of a PodGroup are not supported"), True, id="this pod cannot be requested"),
        pytest.param(refusal(403, FORBIDDEN), False, id="there is no permission"),
    ],
)
def test_a_refused_request_is_an_eviction(refused: Answered, *, is_asked_for_the_next: bool) -> None:
    server, clock = Server(refuses=refused), Clock()
    requests = asking(server, clock)

    assert requests.ask(POD) is None
    assert requests.ask(POD) is None
    requests.ask(OTHER)

    posts = [each for each in server.sent if each.startswith("POST")]
    assert len(posts) == (2 if is_asked_for_the_next else 1)


def test_what_nobody_wants_to_leave_any_more_is_taken_back_once() -> None:
    server, clock = Server(), Clock()
    requests = asking(server, clock)
    requests.ask(POD)
    requests.ask(OTHER)

    requests.settle(lambda uid: uid == OTHER.uid)
    requests.settle(lambda uid: uid == OTHER.uid)

    assert list(server.stored) == ["grapnel-u2"]
    assert sum(each.startswith("DELETE") for each in server.sent) == 1
