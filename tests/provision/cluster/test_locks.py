"""What other tools hold by objects of their own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.nodes.locks import DAEMON_SETS, LOCK, DaemonSet, Locks, kured_holds, maintenance_holds
from provision.cluster.kubernetes.nodes.maintenances import MAINTENANCES, NodeMaintenance
from provision.cluster.kubernetes.nodes.polled import INTERVAL_S, REFUSED_S
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from provision.cluster.machine import Machine
from provision.declaration.spec.model import RESPECTED, Tool
from provision.rollout.errors import UnreachableError
from provision.rollout.model import NodeView
from tests.provision.cluster.fakes import Clock, ScriptedServer, answer, refusal

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
HOUR = 3600 * 10**9  # as kured writes it


def lock(node: str, created: str = "2026-11-23T11:29:59.123456789Z", ttl: int = 0) -> dict[str, Any]:
    return {"nodeID": node, "metadata": {"unschedulable": False}, "created": created, "TTL": ttl}


def kured(text: str | None) -> dict[str, Any]:
    annotations = {} if text is None else {LOCK: text}
    return {"metadata": {"name": "kured", "namespace": "kube-system", "annotations": annotations}}


def held(text: str | None) -> set[str]:
    return set(kured_holds([msgspec.convert(kured(text), DaemonSet)], NOW))


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        pytest.param(None, set(), id="nobody has it"),
        pytest.param(json.dumps(lock("n1")), {"n1"}, id="one node has it"),
        pytest.param(json.dumps(lock("n1", ttl=HOUR)), {"n1"}, id="its time is not up"),
        pytest.param(json.dumps(lock("n1", ttl=HOUR // 2)), set(), id="its time is up"),
        pytest.param(
            json.dumps({"maxOwners": 3, "locks": [lock("n1"), lock("n2"), lock("n3", ttl=1)]}),
            {"n1", "n2"},
            id="several nodes have it",
        ),
        pytest.param("{}", set(), id="an empty lock"),
        pytest.param("n1", set(), id="something else"),
        pytest.param("[" * 100_000, set(), id="nonsense"),
        pytest.param(json.dumps(lock("n1", created="yesterday")), set(), id="a date that is none"),
    ],
)
def test_kured_holds_the_nodes_that_have_its_lock(text: str | None, nodes: set[str]) -> None:
    assert held(text) == nodes


def maintenance(node: str, reason: str | None) -> NodeMaintenance:
    conditions = [] if reason is None else [{"type": "Ready", "status": "False", "reason": reason}]
    whole = {
        "metadata": {"name": f"m-{node}", "namespace": "default"},
        "spec": {"nodeName": node, "requestorID": "some.operator.com"},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(whole, NodeMaintenance)


def test_the_maintenance_operator_holds_a_node_once_it_has_begun() -> None:
    waiting = [maintenance("n1", None), maintenance("n2", "Pending"), maintenance("n3", "Scheduled")]
    assert maintenance_holds(waiting) == {}
    begun = [maintenance(reason, reason) for reason in ("Cordon", "WaitForPodCompletion", "Draining", "Ready")]
    assert set(maintenance_holds(begun)) == {"Cordon", "WaitForPodCompletion", "Draining", "Ready"}
    assert "NodeMaintenance default/m-Ready): waits until" in maintenance_holds(begun)["Ready"]


def test_a_maintenance_that_only_names_grapnel_as_its_requestor_is_not_ours() -> None:
    """It held nothing, granted what was asked of the operator for the node, and was deleted as a leftover."""
    whole = {
        "metadata": {"name": "mallory", "namespace": "default"},
        "spec": {"nodeName": "n1", "requestorID": "grapnel.dev"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]},
    }
    found = msgspec.convert(whole, NodeMaintenance)
    named = msgspec.convert({**whole, "metadata": {"name": "grapnel-n1", "namespace": "default"}}, NodeMaintenance)
    assert (found.is_ours, named.is_ours) == (False, True)
    assert set(maintenance_holds([found, named])) == {"n1"}
    assert maintenance_holds([named]) == {}


def locks(server: ScriptedServer, clock: Clock, *respect: Tool) -> Locks:
    return Locks(Api(server, sleep=clock.sleep, clock=clock), respect, clock=clock, now=lambda: NOW)


def test_it_is_read_again_only_now_and_then() -> None:
    server = ScriptedServer(
        answer(body={"items": [kured(json.dumps(lock("n1")))]}), answer(body={"items": [kured(None)]})
    )
    clock = Clock()
    found = locks(server, clock, Tool.KURED)
    assert set(found.holds()) == {"n1"}
    clock.now += INTERVAL_S - 1
    assert set(found.holds()) == {"n1"}
    assert [(each.path, each.query["fieldSelector"]) for each in server.requests] == [
        (DAEMON_SETS, "metadata.name=kured")
    ]
    clock.now += 1
    assert found.holds() == {}


@pytest.mark.parametrize("code", [403, 404])
def test_without_the_permission_or_the_api_nothing_is_held(code: int) -> None:
    server, clock = ScriptedServer(refusal(code)), Clock()
    found = locks(server, clock, Tool.MAINTENANCE_OPERATOR)
    assert found.holds() == {}
    clock.now += REFUSED_S - 1
    assert found.holds() == {}
    assert [each.path for each in server.requests] == [MAINTENANCES]
    clock.now += 1
    found.holds()
    assert len(server.requests) == 2


def test_what_was_known_counts_while_nobody_answers() -> None:
    server = ScriptedServer(answer(body={"items": [kured(json.dumps(lock("n1")))]}), UnreachableError("no answer"))
    clock = Clock()
    found = locks(server, clock, Tool.KURED)
    assert set(found.holds()) == {"n1"}
    clock.now += INTERVAL_S
    assert set(found.holds()) == {"n1"}
    assert clock.slept == []  # the rollout does not wait for it


def test_nothing_is_read_of_tools_that_are_not_respected() -> None:
    server = ScriptedServer()
    assert locks(server, Clock(), Tool.KARPENTER).holds() == {}
    assert server.requests == []
    assert Tool.MAINTENANCE_OPERATOR not in RESPECTED


class Server:
    """A cluster of one Node, and kured's DaemonSet."""

    name = "cluster x"

    def __init__(self) -> None:
        self.lock: str | None = None

    def send(self, request: Request) -> ApiResponse:
        node = {"metadata": {"name": "node-1", "uid": "u", "resourceVersion": "7"}}
        if request.path == DAEMON_SETS:
            return answer(body={"items": [kured(self.lock)]})
        if request.path == "/api/v1/nodes/node-1":
            return answer(body=node)
        return answer(body={"items": [node] if request.path == "/api/v1/nodes" else []})


def test_a_view_says_who_holds_its_node_and_is_the_same_object_until_that_changes() -> None:
    server, clock = Server(), Clock()
    api = Api(server, sleep=clock.sleep, clock=clock)
    rules = PodRules(resources=frozenset({"nvidia.com/gpu"}))
    machines = {"n1": Machine(hostname="node-1"), "node-1": Machine()}
    cluster = KubernetesCluster(
        api, rules=rules, machines=machines, locks=Locks(api, [Tool.KURED], clock=clock, now=lambda: NOW)
    )

    def look() -> NodeView:
        view = cluster.observe(["node-1"])["node-1"]
        assert isinstance(view, NodeView)
        return view

    assert look().held_by == ""
    assert look() is look()
    server.lock, clock.now = json.dumps(lock("node-1")), clock.now + INTERVAL_S
    held = look()
    assert held.held_by.startswith("kured has its lock for it, to reboot it")
    assert look() is held
    server.lock, clock.now = json.dumps(lock("node-2")), clock.now + INTERVAL_S
    assert look().held_by == ""
