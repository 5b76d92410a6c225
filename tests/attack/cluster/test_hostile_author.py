"""Somebody who may edit one namespace, against what grapnel does to pods and nodes.

Owners of other API groups, ReplicaSets of others and EvictionRequests are in tests/provision/cluster.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.kubernetes.lease import holder_now
from provision.controller.jobs.manifest import label_of
from provision.controller.uninstall.workload import Workload
from provision.rollout.interface.cluster import EvictionOutcome
from provision.rollout.model import NodeView
from tests.attack.cluster import naive
from tests.attack.cluster.identities import MERGE, OURS, THEIRS, Identity, path_of
from tests.provision.cluster.stage import GPU, GPU_RULES, wait_until

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional  # etcd and an API server

JOBS = f"/apis/batch/v1/namespaces/{THEIRS}/jobs"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{THEIRS}/leases"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{THEIRS}/daemonsets"
PODS = f"/api/v1/namespaces/{THEIRS}/pods"
OWNER = {"kind": "DaemonSet", "name": "d", "uid": "6f1b1b1e-0000-4000-8000-000000000000", "controller": True}
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "0123456789abcdef"}}


def pod_on(node: str, name: str, namespace: str = THEIRS, **metadata: object) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "4"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"nodeName": node, "containers": [container]},
    }


def job(name: str, node: str, namespace: str = THEIRS) -> dict[str, Any]:
    labels = {"grapnel.dev/node-job": label_of(node)}
    template = {"restartPolicy": "Never", "containers": [{"name": "agent", "image": "x"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": {"grapnel.dev/node": node}},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": template}},
    }


def lease(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": "evil", "leaseDurationSeconds": 3600, "renewTime": "2030-01-01T00:00:00.000000Z"},
    }


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {"grapnel.dev/node-job": "x"}}, id="a run on a node"),
        pytest.param({"labels": {"grapnel.dev/node-daemon": "pod"}}, id="the node daemon"),
        pytest.param({"ownerReferences": [{"apiVersion": "example.com/v1", **OWNER}]}, id="of a made-up DaemonSet"),
    ],
)
def test_a_pod_is_not_hidden_by_what_its_author_says(
    stage: Stage, author: Identity, name: str, metadata: dict[str, Any]
) -> None:
    node = stage.make_node()
    author.make(pod_on(node, name, **metadata))

    assert naive.in_the_way([author.read(f"{PODS}/{name}")]) == []
    cluster = stage.connect(rules=replace(GPU_RULES, takes_all=True))
    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    (found,) = seen.gpu_pods
    assert (found.name, found.is_mirror_or_daemon) == (name, False)
    assert cluster.evict(found).outcome is EvictionOutcome.EVICTED


def test_a_pod_that_runs_does_not_become_a_mirror(stage: Stage, author: Identity, name: str) -> None:
    """Mirrors are left alone, and their author may call a new pod one, which no kubelet starts: this one has a GPU."""
    author.make(pod_on(stage.make_node(), name))
    for part in ("", "/status"):
        said = author.ask("PATCH", f"{PODS}/{name}{part}", {"metadata": MIRROR}, MERGE).refusal
        assert said.startswith(("403", "422")), said


def test_a_pod_that_runs_is_not_called_ended_by_its_author(stage: Stage, author: Identity, name: str) -> None:
    """Pods that have ended hold nothing."""
    author.make(pod_on(stage.make_node(), name))
    ended = {"status": {"phase": "Succeeded"}}
    assert author.ask("PATCH", f"{PODS}/{name}/status", ended, MERGE).refusal.startswith("403")
    assert author.ask("PATCH", f"{PODS}/{name}", ended, MERGE).refusal == ""
    assert author.read(f"{PODS}/{name}")["status"]["phase"] == "Pending"


def test_a_job_of_another_namespace_makes_no_node_busy(api: Api, author: Identity, victim: str, name: str) -> None:
    author.make(job(name, victim))
    wait_until(lambda: author.read(f"{JOBS}/{name}")["status"].get("active", 0) > 0, "it is active")

    theirs = author.items(JOBS)
    assert naive.busy_nodes(theirs) == [victim]
    assert Workload(api, OURS, "c").busy_nodes() == []


def test_a_lease_of_our_name_elsewhere_holds_nobody(api: Api, author: Identity) -> None:
    author.make(lease("grapnel-upgrade", THEIRS))

    assert naive.holder_of("grapnel-upgrade", author.items(LEASES)) == "evil"
    assert holder_now(api) == ""


def test_a_daemon_set_called_kured_holds_no_node(stage: Stage, author: Identity, victim: str) -> None:
    labels = {"app": "kured"}
    pod = {"containers": [{"name": "kured", "image": "x"}]}
    author.make(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {
                "name": "kured",
                "namespace": THEIRS,
                "annotations": {"weave.works/kured-node-lock": json.dumps({"nodeID": victim, "TTL": 0})},
            },
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        }
    )

    def status() -> dict[str, Any]:
        found: dict[str, Any] = author.read(f"{DAEMON_SETS}/kured")["status"]
        return found

    wait_until(lambda: status().get("updatedNumberScheduled", 0) > 0, "it has pods")
    assert naive.is_held_by_kured(victim, author.items(DAEMON_SETS))
    seen = stage.connect().observe([victim])[victim]
    assert isinstance(seen, NodeView)
    assert seen.held_by == ""


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod_on("x", "x", OURS), id="a pod of ours"),
        pytest.param(job("x", "x", OURS), id="a Job of ours"),
        pytest.param(lease("grapnel-upgrade", "kube-system"), id="our lease"),
        pytest.param(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": OURS}}, id="a Secret"
        ),
    ],
)
def test_where_grapnel_believes_what_is_said_its_author_writes_nothing(
    author: Identity, document: dict[str, Any]
) -> None:
    assert author.ask("POST", path_of(document), document).refusal.startswith("403")
