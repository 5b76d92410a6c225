"""Single nodes are changed on what was looked at, and nothing else of them."""

from __future__ import annotations

import json
from dataclasses import replace
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest

from provision.base.errors import UsageError
from provision.cluster import LocalCluster
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.nodes.marks import NVIDIA_STATE, UPGRADE
from provision.cluster.kubernetes.nodes.others import SKIP
from provision.cluster.node_requests import KubernetesRequests, StateFileRequests
from provision.cluster.record import decode_record, encode_record
from provision.rollout.errors import ConflictError
from provision.rollout.model import Phase
from provision.rollout.requests import abandon, retry, skip, uncordon, unskip
from tests.provision.cluster.fakes import Clock, answer, refusal
from tests.provision.cluster.samples import NOW, RECORD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request
    from provision.rollout.requests import Found

FAILED = replace(RECORD, phase=Phase.FAILED, failed_in=Phase.SWAP, reason="broken")


class NodeServer:
    """Keeps Nodes with the optimistic locking and the merge patches of the real server."""

    name = "cluster x"

    def __init__(self, *names: str) -> None:
        self.nodes = {name: node(name) for name in names}
        self.before: Callable[[], None] = lambda: None  # runs once ahead of the next write, as a rival would
        self.patches: list[Any] = []

    def send(self, request: Request) -> ApiResponse:
        date = {"Date": format_datetime(NOW, usegmt=True)}
        name = request.path.removeprefix("/api/v1/nodes").removeprefix("/")
        if request.method == "GET":
            if not name:
                return answer(200, {"items": list(self.nodes.values())}, date)
            return answer(200, self.nodes[name], date) if name in self.nodes else refusal(404, headers=date)
        hook, self.before = self.before, lambda: None
        hook()
        assert request.body is not None
        if name not in self.nodes:
            return refusal(404, headers=date)
        if request.body["metadata"]["resourceVersion"] != self.nodes[name]["metadata"]["resourceVersion"]:
            return refusal(409, "the object has been modified", headers=date)
        self.patches.append(request.body)
        merge(self.nodes[name], request.body)
        self.touch(name)
        return answer(200, self.nodes[name], date)

    def touch(self, name: str) -> None:
        metadata = self.nodes[name]["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {"rack": "b7"},
            "annotations": {UPGRADE: encode_record(FAILED), "note": "kept"},
        },
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value


def requests(server: NodeServer, *names: str) -> KubernetesRequests:
    clock = Clock()
    return KubernetesRequests(Api(server, sleep=clock.sleep, clock=clock), names, {})


def test_the_label_of_nvidia_is_set_and_taken_away_and_nothing_else_is_touched() -> None:
    server = NodeServer("n1")

    requests(server, "n1").change("n1", skip)
    labels = dict(server.nodes["n1"]["metadata"]["labels"])
    requests(server, "n1").change("n1", unskip)

    assert labels == {"rack": "b7", SKIP: "true"}
    assert server.nodes["n1"]["metadata"] | {"resourceVersion": ""} == node("n1")["metadata"] | {"resourceVersion": ""}
    assert [set(patch) for patch in server.patches] == [{"metadata"}, {"metadata"}]


def test_an_abandoned_node_keeps_its_cordon_and_loses_record_and_labels() -> None:
    server = NodeServer("n1")
    server.nodes["n1"]["metadata"]["labels"] |= {UPGRADE: "failed", NVIDIA_STATE: "upgrade-failed"}

    requests(server, "n1").change("n1", abandon)

    metadata = server.nodes["n1"]["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"rack": "b7", SKIP: "true"}, {"note": "kept"})
    assert server.nodes["n1"]["spec"] == {"unschedulable": True}

    requests(server, "n1").change("n1", uncordon)
    assert server.nodes["n1"]["spec"] == {"unschedulable": False}


def test_what_somebody_changes_in_the_same_moment_is_looked_at_first() -> None:
    """An engine at work began with the node again: that is not a node that has failed any more."""
    server = NodeServer("n1")

    def go_on() -> None:
        server.nodes["n1"]["metadata"]["annotations"][UPGRADE] = encode_record(RECORD)
        server.touch("n1")

    server.before = go_on

    told = requests(server, "n1").change("n1", lambda found: retry(found, "ada"))

    assert told.is_refused
    assert decode_record(server.nodes["n1"]["metadata"]["annotations"][UPGRADE]) == RECORD


def test_a_change_that_does_not_matter_is_no_conflict() -> None:
    server = NodeServer("n1")
    server.before = lambda: server.touch("n1")

    requests(server, "n1").change("n1", lambda found: retry(found, "ada"))

    assert decode_record(server.nodes["n1"]["metadata"]["annotations"][UPGRADE]).retry


def test_a_node_that_never_comes_to_rest_is_an_error() -> None:
    server = NodeServer("n1")

    def touch() -> None:
        server.touch("n1")
        server.before = touch

    server.before = touch

    with pytest.raises(ConflictError, match="node n1 of cluster x does not come to rest"):
        requests(server, "n1").change("n1", skip)


def test_a_record_that_cannot_be_read_can_be_abandoned() -> None:
    server = NodeServer("n1")
    server.nodes["n1"]["metadata"]["annotations"][UPGRADE] = "{"

    seen: list[Found] = []
    requests(server, "n1").change("n1", lambda found: (seen.append(found), abandon(found))[1])

    assert "annotation grapnel.dev/upgrade of node n1 of cluster x" in seen[0].unread
    assert UPGRADE not in server.nodes["n1"]["metadata"]["annotations"]


@pytest.mark.parametrize("order", [("gpu-1", "gpu-22"), ("gpu-22", "gpu-1")])
def test_a_misspelt_name_is_told_before_anything_is_changed(order: tuple[str, ...]) -> None:
    server = NodeServer("gpu-1", "gpu-2")

    with pytest.raises(UsageError) as raised:
        requests(server, *order).change(order[0], skip)

    assert raised.value.message == "gpu-22 is not a node of cluster x"
    assert raised.value.hint == "did you mean gpu-2?"
    assert server.patches == []


def test_a_node_that_leaves_meanwhile_is_told() -> None:
    server = NodeServer("n1")
    server.before = server.nodes.clear

    with pytest.raises(UsageError, match="n1 has just left cluster x"):
        requests(server, "n1").change("n1", skip)


def test_without_a_cluster_they_are_in_the_state_file(tmp_path: Path) -> None:
    path = tmp_path / "node-state-1.json"
    engine = LocalCluster(path)
    engine.observe(["n1", "n2"])
    engine.write("n1", FAILED, cordoned=True)
    asked = StateFileRequests(path, ["n1", "n2"])

    asked.change("n1", lambda found: retry(found, "ada"))
    asked.change("n2", skip)

    seen = engine.observe(["n1", "n2"])
    assert seen["n1"].record == replace(FAILED, retry=True)
    assert seen["n2"].is_skipped
    asked.change("n1", abandon)
    with pytest.raises(ConflictError):
        engine.write("n1", RECORD)
    seen = engine.observe(["n1", "n2"])
    assert (seen["n1"].record, seen["n1"].is_skipped, seen["n1"].is_cordoned) == (None, True, True)
    asked.change("n1", unskip)
    asked.change("n1", uncordon)
    asked.change("n2", unskip)
    assert json.loads(path.read_text())["nodes"] == {}


def test_a_node_that_is_skipped_meanwhile_is_no_conflict_for_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "node-state-1.json"
    engine = LocalCluster(path)
    engine.observe(["n1"])
    StateFileRequests(path, ["n1"]).change("n1", skip)

    engine.write("n1", RECORD, cordoned=True)

    seen = LocalCluster(path).observe(["n1"])["n1"]
    assert (seen.record, seen.is_skipped) == (RECORD, True)
