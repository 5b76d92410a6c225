"""What a node with root in other hands says of itself counts for no other, and holds nobody up."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from plugin.gpushare.books.book import Books
from plugin.gpushare.books.objects import parse_node, parse_pod
from provision.cluster.kubernetes.api.exchange import Request
from provision.cluster.kubernetes.lease import holder_now
from provision.cluster.kubernetes.objects.nodes import Node
from provision.controller.decision.attempts import Attempts
from provision.controller.decision.choice import choose
from provision.controller.decision.fingerprint import of_node
from provision.controller.nodes import see
from tests.attack.cluster import naive
from tests.attack.cluster.identities import Identity, kubelet_of
from tests.attack.cluster.test_hostile_node import CARD, LEASES, UNITS
from tests.provision.cluster.stage import GPU
from tests.provision.controller.samples import FINGERPRINT
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api
    from tests.provision.cluster.stage import Stage


pytestmark = pytest.mark.functional  # etcd and an API server

OWN = [
    pytest.param({"metadata": {"labels": {"pool": "mine"}}}, "", id="a label"),
    pytest.param({"metadata": {"labels": {"grapnel.dev/upgrade": "done"}}}, "", id="the label of the phase"),
    pytest.param({"metadata": {"annotations": {"grapnel.dev/as-declared": "f00d"}}}, "", id="a mark as declared"),
    pytest.param({"metadata": {"annotations": {"grapnel.dev/failed": "f00d"}}}, "", id="a mark as failed"),
    pytest.param({"metadata": {"annotations": {"grapnel.dev/upgrade": "{}"}}}, "", id="a record"),
    pytest.param({"metadata": {"annotations": {"grapnel.dev/memory-units": "{}"}}}, "", id="memory units"),
    pytest.param({"metadata": {"finalizers": ["example.com/kept"]}}, "", id="a finalizer"),
    pytest.param({"spec": {"unschedulable": True}}, "", id="a cordon"),
    pytest.param({"spec": {"unschedulable": None}}, "", id="no cordon"),
    pytest.param({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "/status", id="that it is ready"),
    pytest.param({"status": {"conditions": [{"type": "GPUDriverReady", "status": "True"}]}}, "/status", id="a driver"),
    pytest.param({"status": {"allocatable": {GPU: "8"}}}, "/status", id="GPUs"),
    pytest.param({"status": {"nodeInfo": {"machineID": "f00d"}}}, "/status", id="a machine"),
]


@pytest.mark.parametrize(("patch", "part"), OWN)
def test_what_a_node_says_of_itself_it_says_of_no_other(  # noqa: PLR0917 - fixtures and parameters
    admin: Identity, kubelet: Identity, evil: str, victim: str, patch: dict[str, Any], part: str
) -> None:
    """Marks, records and cordons are a kubelet's to write on its own Node alone: a reader believes them of that one."""
    try:
        assert kubelet.patch_node(victim, patch, part).startswith("403")
        assert kubelet.patch_node(evil, patch, part) == ""
    finally:
        clean = {"metadata": {"annotations": None, "finalizers": None}, "spec": {"unschedulable": None}}
        assert admin.patch_node(evil, clean) == ""


def test_a_mark_does_not_outweigh_what_the_daemon_reports(
    admin: Identity, api: Api, kubelet: Identity, evil: str
) -> None:
    """Who forges the mark keeps only itself from being looked at, and only with its daemon's report forged as well."""

    def read() -> Node:
        found: Node = api.call(Request(method="GET", path=f"/api/v1/nodes/{evil}"), Node)
        return found

    def due() -> frozenset[str]:
        seen = see(read())
        return choose(stack(), FINGERPRINT, {evil: seen}, Attempts(), 0.0).due

    wanted = of_node(FINGERPRINT, see(read()))
    assert admin.patch_node(evil, {"spec": {"taints": []}}) == "", "as the controller leaves one that has joined"
    assert kubelet.patch_node(evil, {"metadata": {"annotations": {"grapnel.dev/as-declared": wanted}}}) == ""
    said = {
        "type": "GPUDriverReady",
        "status": "True",
        "reason": "DriverAnswers",
        "message": "driver 1.2.3 answers",
        "lastHeartbeatTime": api.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    assert kubelet.patch_node(evil, {"status": {"conditions": [said]}}, "/status") == ""

    assert naive.is_as_declared(admin.read(f"/api/v1/nodes/{evil}"), wanted)
    assert due() == {evil}
    declared = said | {"message": f"driver {stack().spec.driver.version} answers"}
    assert kubelet.patch_node(evil, {"status": {"conditions": [declared]}}, "/status") == ""
    assert due() == frozenset(), "root of a node may lie about that node"


def test_memory_units_that_a_node_reports_of_another_s_pod_are_not_counted(
    admin: Identity, kubelet: Identity, evil: str, victim: str, name: str
) -> None:
    """It could have made another node look full, or had that pod's annotations rewritten."""
    container = {"name": "main", "image": "x", "resources": {"limits": {UNITS: "2"}}}
    pod = admin.make(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": victim, "containers": [container]},
        }
    )

    def report(**pods: object) -> dict[str, Any]:
        cards = [{"uuid": CARD, "index": 0, "units": 15, "healthy": True}]
        document = {
            "schema": "grapnel.dev/memory-units/v1alpha1",
            "resource": UNITS,
            "unitBytes": 1 << 30,
            "cards": cards,
            "askedAt": time.time_ns() + 60_000_000_000,
            **pods,
        }
        return {"metadata": {"annotations": {"grapnel.dev/memory-units": json.dumps(document)}}}

    lie = [{"namespace": "default", "name": name, "containers": {"main": {CARD: 15}}}]
    assert kubelet.patch_node(evil, report(pods=lie)) == ""
    assert admin.patch_node(victim, report(pods=[])) == ""
    for node in (evil, victim):
        assert admin.patch_node(node, {"status": {"allocatable": {UNITS: "15"}}}, "/status") == ""
    nodes = admin.items("/api/v1/nodes")
    books = Books()
    books.replace_nodes(parse_node(each, UNITS) for each in nodes)
    parsed = parse_pod(pod, UNITS)
    assert parsed is not None
    books.put_pod(parsed)

    assert naive.units_of(name, nodes) == 15
    assert [(each.pod.name, each.units) for each in books.shares(victim)] == [(name, 2)]
    assert books.shares(evil) == ()
    assert [*books.corrections(evil), *books.corrections(victim)] == []


@pytest.mark.parametrize(
    ("namespace", "lease"),
    [("kube-system", "grapnel-upgrade"), ("kube-system", "grapnel-controller"), ("kube-node-lease", "VICTIM")],
)
@pytest.mark.parametrize("method", ["POST", "GET", "PATCH", "DELETE"])
def test_a_node_neither_takes_nor_reads_a_lease_of_others(
    kubelet: Identity, victim: str, namespace: str, lease: str, method: str
) -> None:
    name = lease.replace("VICTIM", victim)
    path = f"{LEASES}/{namespace}/leases" + ("" if method == "POST" else f"/{name}")
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": "evil", "leaseDurationSeconds": 3600, "renewTime": "2030-01-01T00:00:00.000000Z"},
    }
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    said = kubelet.ask(method, path, body if method in {"POST", "PATCH"} else None, kind)
    assert said.refusal.startswith("403"), said


def test_a_node_s_own_lease_of_our_name_holds_nobody(stage: Stage, admin: Identity, api: Api) -> None:
    """A node may be called as our lease is: its kubelet then has a Lease of that name, in another namespace."""
    called = kubelet_of(stage.control_plane, "grapnel-upgrade")
    called.make(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "grapnel-upgrade", "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": "evil",
                "leaseDurationSeconds": 3600,
                "renewTime": "2030-01-01T00:00:00.000000Z",
            },
        }
    )
    assert naive.holder_of("grapnel-upgrade", admin.items(f"{LEASES}/kube-node-lease/leases")) == "evil"
    assert holder_now(api) == ""
