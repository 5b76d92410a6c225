"""Phases of an upgrade show on the Node as Events and conditions; what goes wrong there does not reach the upgrade."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from provision.apply.model import Note
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.nodes.others import OWN_REASON, UPGRADE_CONDITION
from provision.cluster.kubernetes.notices import LIFECYCLE, Notice, conditions, event, message_of, reason_of
from provision.cluster.kubernetes.objects.core import Metadata
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.permissions import TELLING
from provision.cluster.kubernetes.reporter import MAX_WAITING, NodeReporter
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.model import Phase
from tests.provision.cluster.fakes import answer, refusal
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_progress import STANDING
from tests.provision.rollout.fakes import NOON, record, state, view

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request

RBAC = Path(__file__).parents[3] / "deploy/rbac/telling.yaml"
KINDS = (UPGRADE_CONDITION,)


class Server:
    """Takes Events and conditions; refuses what has one of the words of ``forbidden`` in its path."""

    name = "cluster x"

    def __init__(self, *forbidden: str) -> None:
        self.forbidden = forbidden
        self.requests: list[Request] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_down = False

    def send(self, request: Request) -> ApiResponse:
        self.gate.wait(60)
        self.requests.append(request)
        if self.is_down:
            raise UnreachableError("cluster x does not answer: connection refused")
        for word in self.forbidden:
            if word in request.path:
                resource = "events" if word == "events" else "nodes/status"
                return refusal(403, f'User "eve" cannot {"create"} resource "{resource}" in API group ""')
        return answer(201, {"metadata": {"name": "x"}})

    def bodies(self, word: str) -> list[Any]:
        return [request.body for request in self.requests if word in request.path]


def node(name: str) -> Node:
    return Node(metadata=Metadata(name=f"node-{name}", uid=f"uid-{name}"))


def reporter(server: Server, *, events: bool = True, kinds: tuple[str, ...] = KINDS) -> NodeReporter:
    return NodeReporter(Api(server), node, events=events, kinds=kinds, clock=lambda: NOON, pause_s=0)


def test_what_a_killed_engine_left_on_a_node_that_is_over_is_corrected_and_nothing_else() -> None:
    server = Server()
    found = reporter(server)
    fleet = [
        state("1", view("1", record(Phase.DONE), told=(UPGRADE_CONDITION, "Drained"))),
        state("2", view("2", None, told=(UPGRADE_CONDITION,))),
        state("3", view("3", record(Phase.SWAP), told=(UPGRADE_CONDITION,))),
        state("4", view("4", record(Phase.DONE))),
    ]
    found.see(STANDING, fleet)
    found.see(STANDING, fleet)
    assert found.close() == ""

    changed = {
        request.path: [(each["type"], each["status"], each["reason"]) for each in request.body["status"]["conditions"]]
        for request in server.requests
        if request.body
    }
    assert changed == {
        "/api/v1/nodes/node-1/status": [
            (UPGRADE_CONDITION, "False", "GrapnelDone"),
            ("Drained", "False", "GrapnelDone"),
        ],
        "/api/v1/nodes/node-2/status": [(UPGRADE_CONDITION, "False", "GrapnelForgotten")],
    }, "a node in flight is told of when it goes on"
    assert len(server.requests) == 2


def test_what_is_left_to_know_of_a_node_that_is_done_is_a_warning_and_a_long_reason_is_cut() -> None:
    server = Server()
    found = reporter(server)
    found.hear(PhaseEntered("1", Phase.DONE, remark="pod x has the former libraries"))
    found.hear(PhaseEntered("2", Phase.FAILED, f"it broke; {'x' * 600}", takes_pods=True))
    found.close()
    told = {each["involvedObject"]["name"]: (each["type"], each["message"]) for each in server.bodies("/events")}
    done = "the driver upgrade is done: the node is in service: pod x has the former libraries"
    assert told["node-1"] == ("Warning", done)
    kind, message = told["node-2"]
    assert kind == "Warning"
    assert message.startswith("the driver upgrade has failed, and the node takes pods: it broke; xxx")
    assert len(message) < 300


def test_an_engine_that_lives_renews_what_holds() -> None:
    server = Server()
    found = NodeReporter(Api(server), node, events=False, kinds=KINDS, clock=lambda: NOON, pause_s=0, heartbeat_s=0.02)
    found.hear(PhaseEntered("1", Phase.SWAP))
    found.hear(PhaseEntered("2", Phase.DONE))
    beat = {"type": UPGRADE_CONDITION, "lastHeartbeatTime": "2026-05-04T12:00:00Z"}
    wait_until(
        lambda: sum(body["status"]["conditions"] == [beat] for body in server.bodies("node-1/status")) > 1,
        "the condition is renewed",
    )
    found.close()

    assert server.bodies("node-1/status")[-1] == {"metadata": {"uid": "uid-1"}, "status": {"conditions": [beat]}}
    assert [beat] not in [body["status"]["conditions"] for body in server.bodies("node-2/status")]


def notice(phase: Phase, reason: str = "") -> Notice:
    return Notice(node="n1", uid="uid-1", phase=phase, reason=reason, time=NOON)


def test_a_phase_is_an_event_and_a_condition_of_the_node() -> None:
    server = Server()
    found = reporter(server)
    found.hear(PhaseEntered("1", Phase.DRAIN))
    found.hear(NodeWaits("1", "pod web-1"))
    found.hear(PhaseEntered("1", Phase.FAILED, "pods did not leave"))
    assert found.close() == ""

    events = server.bodies("/events")
    assert [(each["reason"], each["type"]) for each in events] == [
        ("GrapnelDrain", "Normal"),
        ("GrapnelFailed", "Warning"),
    ]
    assert events[0]["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-1"}
    assert events[1]["message"] == "the driver upgrade has failed: the node stays cordoned: pods did not leave"
    changed = [body["status"]["conditions"] for body in server.bodies("/status")]
    assert [[(each["type"], each["status"], each["reason"]) for each in one] for one in changed] == [
        [(UPGRADE_CONDITION, "True", "GrapnelDrain")],
        [(UPGRADE_CONDITION, "False", "GrapnelFailed")],
    ]
    assert {body["metadata"]["uid"] for body in server.bodies("/status")} == {"uid-1"}


def test_the_same_again_is_counted() -> None:
    server = Server()
    found = reporter(server, kinds=())
    for _ in range(3):
        found.hear(PhaseEntered("1", Phase.DRAIN))
    found.close()

    assert [request.method for request in server.requests] == ["POST", "PATCH", "PATCH"]
    assert [body["count"] for body in server.bodies("/events")] == [1, 2, 3]
    assert server.requests[1].path.endswith(f"/{server.bodies('/events')[0]['metadata']['name']}")


@pytest.mark.parametrize(
    ("word", "what", "left"), [("events", "Events", "/status"), ("status", "conditions", "/events")]
)
def test_a_permission_that_is_missing_is_told_once_and_the_rest_goes_on(word: str, what: str, left: str) -> None:
    server = Server(word)
    found = reporter(server)
    for phase in (Phase.CORDON, Phase.DRAIN, Phase.RELEASE):
        found.hear(PhaseEntered("1", phase))
    said = found.close()

    assert said.startswith(f"{what} of nodes are not written: eve may not create")
    assert len(server.bodies(word)) == 1
    assert len(server.bodies(left)) == 3


def test_an_api_server_that_is_away_costs_nobody_anything() -> None:
    server = Server()
    server.is_down = True
    found = reporter(server, kinds=())
    found.hear(PhaseEntered("1", Phase.DRAIN))

    assert found.close() == (
        "some Events of nodes were not written: cluster x does not answer: connection refused; "
        "1 Events were not written"
    )


def test_hearing_never_blocks_and_the_last_phase_of_a_node_is_kept() -> None:
    server = Server()
    server.gate.clear()
    found = reporter(server, events=False)
    for number in range(MAX_WAITING):
        found.hear(PhaseEntered(str(number % 50), Phase.DRAIN if number < MAX_WAITING - 50 else Phase.RESUME))
    for number in range(50):
        found.hear(PhaseEntered(str(number), Phase.DONE))
    server.gate.set()
    said = found.close()

    last = {
        request.path: request.body["status"]["conditions"][0]["reason"] for request in server.requests if request.body
    }
    assert set(last.values()) == {"GrapnelDone"}
    assert len(last) == 50
    assert int(said.split()[0]) >= 49


def test_a_node_that_is_not_known_is_left_out() -> None:
    server = Server()
    found = NodeReporter(Api(server), lambda _name: None, events=True, kinds=KINDS)
    found.hear(PhaseEntered("1", Phase.DRAIN))

    assert (found.close(), server.requests) == ("", [])


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_words(phase: Phase) -> None:
    assert reason_of(phase).startswith(OWN_REASON)
    assert message_of(notice(phase)) != phase.value
    assert event(notice(phase), count=1, first=NOON)["reason"] == reason_of(phase)


def test_the_conditions_of_kep_5683_follow_the_phases() -> None:
    holding: dict[str, list[str]] = {}
    before: dict[str, tuple[str, str]] = {}
    for phase in (Phase.CORDON, Phase.DRAIN, Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.DONE):
        changed = conditions(notice(phase), kinds=LIFECYCLE, before=before)
        before |= {each["type"]: (each["status"], each["reason"]) for each in changed}
        holding[phase] = [kind for kind, (status, _) in before.items() if status == "True"]

    assert holding == {
        "cordon": ["MaintenancePlanned"],
        "drain": ["DrainInProgress"],
        "release": ["Drained", "MaintenanceInProgress"],
        "swap": ["Drained", "MaintenanceInProgress"],
        "verify": ["Drained", "MaintenanceInProgress"],
        "resume": ["Drained", "MaintenanceInProgress"],
        "done": [],
    }


def test_a_condition_that_stays_keeps_the_time_of_its_transition() -> None:
    (first,) = conditions(notice(Phase.DRAIN), kinds=KINDS, before={})
    (second,) = conditions(notice(Phase.SWAP), kinds=KINDS, before={UPGRADE_CONDITION: ("True", "GrapnelDrain")})

    assert first["lastTransitionTime"] == "2026-05-04T12:00:00Z"
    assert "lastTransitionTime" not in second
    assert conditions(notice(Phase.SWAP), kinds=KINDS, before={UPGRADE_CONDITION: ("True", "GrapnelSwap")}) == []


def test_what_is_said_fits_into_an_event() -> None:
    said = message_of(notice(Phase.FAILED, "\x1b" + "ü" * 5000))

    assert len(said) <= 1000
    assert "\x1b" not in said


def test_names_of_events_differ_in_time() -> None:
    later = Notice(node="n1", uid="u", phase=Phase.DRAIN, reason="", time=NOON + timedelta(seconds=1))

    assert event(notice(Phase.DRAIN), count=1, first=NOON)["metadata"] != event(later, count=1, first=NOON)["metadata"]


def test_the_role_grants_what_is_needed() -> None:
    (role,) = [each for each in yaml.safe_load_all(RBAC.read_text()) if each]
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}

    assert granted == {(each.resource, each.verb) for each in TELLING}


def test_what_ends_a_job_in_an_upgrade_is_an_event_of_the_node_and_few_are() -> None:
    server, times = Server(), iter([NOON, NOON + timedelta(seconds=9), NOON + timedelta(seconds=10), NOON])
    found = NodeReporter(Api(server), node, events=True, kinds=KINDS, clock=lambda: next(times), pause_s=0)
    cut = Note("1", "Job grapnel-1 was cut off (its pod was deleted)", reason="JobCutOff")
    found.hear(cut)
    found.hear(replace(cut, text="again at once"))
    found.hear(replace(cut, text="again later"))
    found.hear(replace(cut, node="2"))
    found.hear(Note("1", "a word for the log"))
    assert found.close() == "1 Events were not written"

    events = [
        (body["involvedObject"]["name"], body["reason"], body["type"], body["message"])
        for body in server.bodies("events")
    ]
    word = f"{OWN_REASON}JobCutOff"
    assert events == [
        ("node-1", word, "Warning", cut.text),
        ("node-1", word, "Warning", "again later"),
        ("node-2", word, "Warning", cut.text),
    ]
    assert server.bodies("/status") == []
