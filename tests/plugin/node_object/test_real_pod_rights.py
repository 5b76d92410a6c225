"""What the daemon's token may do on a real API server where it is a pod: what the daemon writes, and nothing else.

Root of a node has this token: by it, it must get nothing that NodeRestriction keeps from the node's kubelet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from plugin.publication.node_object.conditions import OWN_KINDS
from plugin.publication.node_object.label_owners import FIELD_MANAGER
from plugin.publication.node_object.requests import STRATEGIC
from tests.plugin.daemon_process import REPOSITORY
from tests.plugin.node_object.pod_account import LABELS, NAMESPACE, Account, account_on, with_token
from tests.plugin.node_object.real_cluster import Running, register
from tests.plugin.node_object.states import XID_48, observed, transition, without_answer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # etcd and an API server

MANIFEST = REPOSITORY / "deploy/daemonset/grapnel-node.yaml"
ROLE = REPOSITORY / "deploy/rbac/node.yaml"
OTHERS = {
    "topology.example.com/domain": "a",
    "node-restriction.kubernetes.io/stack": "prod",
    "nvidia.com/mig.config": "x",
}
BEFORE: dict[str, Any] = {
    "labels": OTHERS,
    "annotations": {"grapnel.dev/as-declared": "f00d", "grapnel.dev/upgrade": "{}", "example.com/note": "x"},
    "finalizers": ["example.com/kept"],
}


@pytest.fixture(scope="module")
def guarded(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with all that `kubectl apply` of the DaemonSet makes, but the DaemonSet."""
    documents = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] != "DaemonSet"]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    control_plane.kubectl(["apply", "-f", "-"], input_text=listed)
    control_plane.kubectl(["apply", "-f", str(ROLE)])
    yield control_plane
    control_plane.kubectl(["delete", "--wait=false", "-f", "-"], input_text=listed)


@pytest.fixture(scope="module")
def daemon(guarded: ControlPlane) -> Iterator[Account]:
    """The daemon's token on a Node with marks of others; the policies are in force, which takes seconds."""
    node = "guarded"
    register(guarded, node)
    guarded.api.merge(f"/api/v1/nodes/{node}", {"metadata": BEFORE})
    made = Account(guarded, node, account_on(guarded, node))
    wait_until(lambda: "'grapnel-node'" in made.patch({"metadata": {"labels": {"a": "b"}}}, "?dryRun=All"))
    wait_until(lambda: "'grapnel-node-events'" in made.tell(event("else"), "?dryRun=All"))
    yield made
    guarded.api.merge(f"/api/v1/nodes/{node}", {"metadata": {"finalizers": None}})
    guarded.kubectl(["delete", "pod", f"on-{node}", "--namespace", NAMESPACE, "--force", "--grace-period=0"])
    guarded.api.delete(f"/api/v1/nodes/{node}")


def event(node: str, kind: str = "Node", component: str = FIELD_MANAGER, namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": node, "namespace": namespace},
        "reason": "GPUXidError",
        "message": "m",
        "type": "Warning",
        "source": {"component": component, "host": node},
    }


def test_all_that_the_daemon_writes_is_taken(daemon: Account, guarded: ControlPlane, tmp_path: Path) -> None:
    with Running(guarded, daemon.node, tmp_path, daemon.kubeconfig) as running:
        for labels in LABELS:
            running.node.label(labels)
            has = {**labels, **{key: value for key, value in OTHERS.items() if key.startswith("nvidia.com/")}}
            mine = {key: value for key, value in has.items() if key.startswith("nvidia.com/")}
            running.wait(lambda mine=mine: running.labels() == {**mine, "nvidia.com/site": "rack-7"})
        running.node.show(observed("", "", transitions=(transition(),)))
        running.wait(lambda: running.statuses().get("GPUsHealthy") == "True")
        running.node.show(observed(XID_48, "", transitions=(transition(),)))
        running.wait(lambda: running.statuses()["GPUsHealthy"] == "False")
        running.node.show(without_answer("lost"))
        running.wait(lambda: len(running.events()) >= 2)
        running.node.annotate({"grapnel.dev/memory-units": "{}", "grapnel.dev/config-problem": "no"})
        running.wait(lambda: running.read()["metadata"]["annotations"].get("grapnel.dev/config-problem") == "no")
        running.node.annotate({"grapnel.dev/config-problem": None})
        running.wait(lambda: "grapnel.dev/config-problem" not in running.read()["metadata"]["annotations"])
        running.node.label({})
        running.wait(lambda: running.labels() == {"nvidia.com/site": "rack-7", "nvidia.com/mig.config": "x"})
        found = running.read()
        assert not running.logger.lines("level=warning")
    metadata = found["metadata"]
    assert OTHERS.items() <= metadata["labels"].items()
    assert BEFORE["annotations"].items() <= metadata["annotations"].items()
    assert metadata["finalizers"] == BEFORE["finalizers"]
    assert {each["type"] for each in found["status"]["conditions"]} >= {"Ready", *OWN_KINDS[:2]}


def condition(kind: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": "X", "message": "m"}]}}


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_conditions_of_its_own_are_taken(daemon: Account, kind: str) -> None:
    assert not daemon.patch(condition(kind), "/status")


def test_its_own_events_are_counted_up(daemon: Account, guarded: ControlPlane) -> None:
    assert not daemon.tell(event(daemon.node))
    assert not daemon.ask("PATCH", "/api/v1/namespaces/default/events/e", {"count": 2}, STRATEGIC)
    assert guarded.kubectl(["get", "event", "e", "-o", "jsonpath={.count}"]) == "2"
    guarded.kubectl(["delete", "event", "e"])


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "6f1b1b1e-0000-4000-8000-000000000000"}


@pytest.mark.parametrize("part", ["", "/status"])
@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        pytest.param({"labels": {"node-restriction.kubernetes.io/stack": "mine"}}, "labels", id="a stack"),
        pytest.param({"labels": {"node-restriction.kubernetes.io/stack": None}}, "labels", id="no stack"),
        pytest.param({"labels": {"node-restriction.kubernetes.io/other": "x"}}, "labels", id="another restricted one"),
        pytest.param({"labels": {"topology.example.com/domain": "b"}}, "labels", id="a domain"),
        pytest.param({"labels": {"node-role.kubernetes.io/control-plane": ""}}, "labels", id="a role"),
        pytest.param({"labels": {"grapnel.dev/upgrade": "done"}}, "labels", id="the phase"),
        pytest.param({"labels": {"nvidia.com/mig.config": "y"}}, "labels", id="a layout"),
        pytest.param({"labels": {"nvidia.com/device-plugin.config": "y"}}, "labels", id="a configuration"),
        pytest.param({"labels": {"nvidia.com/gpu-driver-upgrade.skip": "true"}}, "labels", id="no upgrades"),
        pytest.param({"labels": {"nvidia.com/gpu.present": "true"}}, "labels", id="the operator's"),
        pytest.param({"annotations": {"grapnel.dev/as-declared": "beef"}}, "annotations", id="as declared"),
        pytest.param({"annotations": {"grapnel.dev/upgrade": None}}, "annotations", id="the upgrade"),
        pytest.param({"annotations": {"grapnel.dev/node-marks": "{}"}}, "annotations", id="the marks"),
        pytest.param({"annotations": {"example.com/note": "y"}}, "annotations", id="somebody's annotation"),
        pytest.param({"annotations": None}, "annotations", id="all annotations"),
        pytest.param({"finalizers": None}, "metadata", id="finalizers"),
        pytest.param({"ownerReferences": [OWNER]}, "metadata", id="an owner"),
    ],
)
def test_metadata_of_others_is_refused(daemon: Account, metadata: object, part: str, why: str) -> None:
    said = daemon.patch({"metadata": metadata}, part)
    assert "'grapnel-node'" in said, said
    assert why in said


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"unschedulable": True}, id="cordon"),
        pytest.param({"taints": [{"key": "a", "effect": "NoSchedule"}]}, id="a taint"),
        pytest.param({"providerID": "x"}, id="providerID"),
        pytest.param({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}, id="podCIDR"),
    ],
)
def test_the_spec_is_refused(daemon: Account, spec: object) -> None:
    assert "may not cordon or taint" in daemon.patch({"spec": spec})


@pytest.mark.parametrize("spec", [{"unschedulable": None}, {"taints": None}], ids=["uncordon", "untaint"])
def test_a_cordoned_node_stays_so(daemon: Account, guarded: ControlPlane, spec: object) -> None:
    guarded.kubectl(["cordon", daemon.node])  # and tainted, by the control plane
    wait_until(lambda: "taints" in guarded.api.read(f"/api/v1/nodes/{daemon.node}")["spec"])
    assert "may not cordon or taint" in daemon.patch({"spec": spec})


@pytest.mark.parametrize(
    ("status", "why"),
    [
        pytest.param({"capacity": {"nvidia.com/gpu": "8"}}, "nothing of its Node's status", id="capacity"),
        pytest.param({"allocatable": {"cpu": "8"}}, "nothing of its Node's status", id="allocatable"),
        pytest.param({"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}, "status", id="an address"),
        pytest.param({"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}, "status", id="the kubelet's port"),
        pytest.param({"images": [{"names": ["a"], "sizeBytes": 1}]}, "nothing of its Node's status", id="images"),
        pytest.param({"volumesAttached": [{"name": "a", "devicePath": "b"}]}, "status", id="volumes"),
        pytest.param({"nodeInfo": {"kubeletVersion": "v0"}}, "nothing of its Node's status", id="versions"),
        pytest.param({"conditions": [{"type": "Ready", "status": "False"}]}, "conditions of its own", id="Ready"),
        pytest.param({"conditions": [{"type": "Ready", "$patch": "delete"}]}, "conditions of its own", id="no Ready"),
        pytest.param({"conditions": [{"type": "GrapnelUpgrade", "status": "True"}]}, "conditions", id="the rollout's"),
        pytest.param({"conditions": None}, "conditions of its own", id="all conditions"),
    ],
)
def test_the_status_of_others_is_refused(daemon: Account, status: object, why: str) -> None:
    said = daemon.patch({"status": status}, "/status")
    assert "'grapnel-node'" in said, said
    assert why in said


def test_other_nodes_are_refused_and_none_is_made_or_deleted(daemon: Account, guarded: ControlPlane) -> None:
    register(guarded, "another")
    own = {"metadata": {"labels": {"nvidia.com/gpu.count": "8"}}}
    try:
        assert "and no other" in daemon.patch(own, node="another")
        assert "and no other" in daemon.patch(condition(OWN_KINDS[0]), "/status", node="another")
        unbound = Account(guarded, daemon.node, with_token(guarded))
        assert "and no other" in unbound.patch(own)
        assert "cannot delete" in daemon.ask("DELETE", f"/api/v1/nodes/{daemon.node}")
        made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "third"}}
        assert "cannot create" in daemon.ask("POST", "/api/v1/nodes", made)
        assert "cannot list" in daemon.ask("GET", "/api/v1/nodes")
    finally:
        guarded.kubectl(["delete", "node", "another"])


@pytest.mark.parametrize(
    "about",
    [
        pytest.param(event("else"), id="another node"),
        pytest.param(event("NODE", kind="Pod"), id="a pod"),
        pytest.param(event("NODE", component="kubelet"), id="as the kubelet"),
        pytest.param(event("NODE", namespace="kube-system"), id="elsewhere"),
    ],
)
def test_events_of_others_are_refused(daemon: Account, about: dict[str, Any]) -> None:
    subject = about["involvedObject"]
    subject["name"] = subject["name"].replace("NODE", daemon.node)
    assert "may tell events of the Node that it runs on" in daemon.tell(about)


def test_somebody_elses_event_is_not_changed(daemon: Account, guarded: ControlPlane) -> None:
    guarded.kubectl(["create", "-f", "-"], input_text=json.dumps(event(daemon.node, component="kubelet")))
    try:
        patch = {"message": "all is well", "source": {"component": FIELD_MANAGER}}
        said = daemon.ask("PATCH", "/api/v1/namespaces/default/events/e", patch, STRATEGIC)
        assert "may tell events of the Node that it runs on" in said
    finally:
        guarded.kubectl(["delete", "event", "e"])


def test_the_api_server_finds_no_fault_with_the_policies(guarded: ControlPlane) -> None:
    for name in ("grapnel-node", "grapnel-node-events"):

        def seen(name: str = name) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(
                guarded.kubectl(["get", "validatingadmissionpolicy", name, "-o", "json"])
            )
            return found

        wait_until(lambda: "observedGeneration" in seen().get("status", {}))
        assert not seen()["status"].get("typeChecking", {}).get("expressionWarnings")
