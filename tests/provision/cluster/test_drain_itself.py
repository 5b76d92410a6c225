"""What has to leave a node, and how it is asked to, against a real API server."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.spec.model import DaemonSets
from provision.declaration.spec.values.label_selector import parse_selector
from provision.rollout.decision.drain import to_restart
from provision.rollout.decision.policy import DrainPolicy
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.interface.cluster import EvictionOutcome
from provision.rollout.model import NodeView, Phase, Record
from tests.provision.cluster.stage import GPU, GPU_RULES, wait_until

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
TAINTED = Record(phase=Phase.CORDON, target="535.309.01", began=NOW, since=NOW, is_tainted=True)
OURS = {"key": "grapnel.dev/upgrade", "effect": "NoSchedule"}
_NUMBERS = itertools.count(1)
THEIRS = {"key": "example.com/pool", "value": "gpu", "effect": "NoSchedule"}


def view(cluster: KubernetesCluster, node: str) -> NodeView:
    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    return seen


def taints(stage: Stage, node: str) -> list[dict[str, str]]:
    """Return a node's taints, save those that the control plane itself sets for a cordon and for its own conditions."""
    found = stage.get("node", node)["spec"].get("taints", [])
    return [taint for taint in found if not taint["key"].startswith("node.kubernetes.io/")]


def daemon_set(name: str, node: str, tolerations: list[dict[str, str]]) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {
        "containers": [container],
        "nodeSelector": {"node": node},
        "tolerations": tolerations,
        "terminationGracePeriodSeconds": 0,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def owner(version: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "DaemonSet", "name": "x", "uid": "made-up", "controller": True}


def test_our_taint_is_written_with_record_and_cordon_and_those_of_others_stay(stage: Stage) -> None:
    node, cluster = stage.make_node(), stage.connect()
    stage.kubectl("taint", "node", node, "example.com/pool=gpu:NoSchedule")
    cluster.observe([node])
    stage.kubectl("taint", "node", node, "example.com/later=x:NoSchedule")  # after it was observed

    cluster.write(node, TAINTED, cordoned=True)

    later = {"key": "example.com/later", "value": "x", "effect": "NoSchedule"}
    assert sorted(taints(stage, node), key=str) == sorted((THEIRS, later, OURS), key=str)
    assert view(cluster, node).record == TAINTED

    cluster.write(node, replace(TAINTED, phase=Phase.DONE), cordoned=False)
    assert sorted(taints(stage, node), key=str) == sorted((THEIRS, later), key=str)


def test_a_daemon_set_that_is_evicted_does_not_come_back_until_the_taint_is_gone(stage: Stage) -> None:
    node = stage.make_node()
    stage.kubectl("label", "node", node, f"node={node}")
    cluster = stage.connect(rules=replace(GPU_RULES, daemon_sets=DaemonSets.EVICT))
    stage.kubectl("create", "-f", "-", data=daemon_set(f"agent-{node}", node, []))
    stage.kubectl("create", "-f", "-", data=daemon_set(f"stubborn-{node}", node, [{"operator": "Exists"}]))

    def pods() -> dict[str, str]:
        return {pod.controller: pod.uid for pod in view(cluster, node).gpu_pods}

    wait_until(lambda: len(pods()) == 2, "the pods of both DaemonSets are there")
    before = view(cluster, node).gpu_pods
    agent = next(pod for pod in before if pod.controller == f"DaemonSet/agent-{node}")
    stubborn = next(pod for pod in before if pod.controller == f"DaemonSet/stubborn-{node}")
    assert (agent.stays, stubborn.stays) == (
        "",
        "its DaemonSet tolerates every taint, and would start it again at once",
    )

    cluster.write(node, TAINTED, cordoned=True)
    wait_until(lambda: OURS in taints(stage, node), "the taint is there")
    assert cluster.evict(agent).outcome is EvictionOutcome.EVICTED
    stage.kubectl("delete", "pod", stubborn.name)
    wait_until(
        lambda: pods().get(f"DaemonSet/stubborn-{node}", stubborn.uid) != stubborn.uid,
        "the DaemonSet controller has looked at this node, and started what tolerates everything",
    )
    assert f"DaemonSet/agent-{node}" not in pods()

    cluster.write(node, replace(TAINTED, phase=Phase.DONE), cordoned=False)
    wait_until(lambda: f"DaemonSet/agent-{node}" in pods(), "it comes back with the taint gone")


def test_a_daemon_set_that_stays_is_restarted_and_is_back_on_the_cordoned_node(stage: Stage) -> None:
    """Its pod went on with the libraries of a driver that was exchanged."""
    node = stage.make_node()
    stage.kubectl("label", "node", node, f"node={node}")
    cluster = stage.connect()
    stage.kubectl("create", "-f", "-", data=daemon_set(f"agent-{node}", node, []))
    wait_until(lambda: bool(view(cluster, node).gpu_pods), "its pod is there")
    (before,) = view(cluster, node).gpu_pods
    assert before.is_restarted
    assert before.created is not None
    since = before.created + timedelta(seconds=1)
    resuming = Record(phase=Phase.RESUME, target="535.309.01", origin="535.261.03", began=before.created, since=since)
    cluster.write(node, resuming, cordoned=True)
    state = NodeState(view=view(cluster, node), target=resuming.target, origin=resuming.origin, drain=DrainPolicy())

    (asked,) = to_restart(state, resuming)
    wait_until(lambda: datetime.now(UTC) > since + timedelta(seconds=1), "the new pod is younger")
    assert cluster.evict(asked).outcome is EvictionOutcome.EVICTED

    def is_back() -> bool:
        return [pod.uid for pod in view(cluster, node).gpu_pods] not in ([], [before.uid])

    wait_until(is_back, "it is started again, on the cordoned node")
    assert view(cluster, node).is_cordoned
    assert to_restart(replace(state, view=view(cluster, node)), resuming) == ()


def test_jobs_are_found_by_their_labels_whether_they_have_a_gpu_or_not(stage: Stage) -> None:
    node, other = stage.make_node(), stage.make_node()
    rules = replace(GPU_RULES, selector=parse_selector("app in (train, tune)"), only_wait=frozenset({"default"}))
    cluster = stage.connect(rules=rules)
    with_gpu, without = stage.make_pod(node, labels={"app": "train"}), stage.make_pod(node, gpus="")
    launcher = stage.make_pod(node, gpus="", labels={"app": "tune"})
    stage.make_pod(other, gpus="", labels={"app": "tune"})

    seen = view(cluster, node)

    assert {pod.name for pod in seen.jobs} == {with_gpu, launcher}
    assert {pod.name: pod.only_waited for pod in seen.gpu_pods} == {
        with_gpu: "namespace default may only be waited for"
    }
    assert without not in {pod.name for pod in (*seen.jobs, *seen.gpu_pods)}


def test_a_pod_that_holds_a_gpu_is_found_by_its_uid_on_its_own_node_only(stage: Stage) -> None:
    node, other, cluster = stage.make_node(), stage.make_node(), stage.connect()
    here, there = stage.make_pod(node, gpus=""), stage.make_pod(other, gpus="")
    uids = {stage.get("pod", name)["metadata"]["uid"] for name in (here, there)}
    cluster.observe([node, other])

    assert [pod.name for pod in cluster.find_pods(node, uids)] == [here]
    assert cluster.find_pods("nowhere", uids) == ()


def test_two_budgets_for_one_pod_are_named_as_what_blocks_it(stage: Stage) -> None:
    node, cluster = stage.make_node(), stage.connect()
    name = stage.make_pod(node, labels={"app": f"twice-{node}"})
    stage.run_pod(name)
    for number in (1, 2):
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"budget-{node}-{number}"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": f"twice-{node}"}}},
        }
        stage.kubectl("create", "-f", "-", data=budget)

    answer = cluster.evict(view(cluster, node).gpu_pods[0])

    assert answer.outcome is EvictionOutcome.BLOCKED
    assert answer.reason == ("several disruption budgets select it, and no such pod can be evicted: remove all but one")
    assert json.loads(stage.kubectl("get", "pod", name, "-o", "json"))["metadata"].get("deletionTimestamp") is None


def test_a_pod_has_a_gpu_if_a_gpu_driver_allocated_its_claim(stage: Stage) -> None:
    node, cluster = stage.make_node(), stage.connect()
    for name, driver in ((f"gpu-{node}", "gpu.nvidia.com"), (f"nic-{node}", "dra.example.com")):
        request = {"name": "one", "exactly": {"deviceClassName": "any"}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        stage.kubectl("create", "-f", "-", data=claim)
        result = {"request": "one", "driver": driver, "pool": node, "device": "d0"}
        status = {"allocation": {"devices": {"results": [result]}}}
        patch = json.dumps({"status": status})
        stage.kubectl("patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", patch)
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "x", "resources": {"claims": [{"name": "a"}]}}],
            "resourceClaims": [{"name": "a", "resourceClaimName": name}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"with-{name}"}, "spec": spec}
        stage.kubectl("create", "-f", "-", data=pod)

    assert [pod.name for pod in view(cluster, node).gpu_pods] == [f"with-gpu-{node}"]


def test_a_plan_knows_which_budget_would_refuse(stage: Stage) -> None:
    node, cluster = stage.make_node(), stage.connect()
    name = stage.make_pod(node, labels={"app": f"kept-{node}"})
    stage.run_pod(name)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"kept-{node}"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": f"kept-{node}"}}},
    }
    stage.kubectl("create", "-f", "-", data=budget)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = stage.get("pdb", f"kept-{node}").get("status", {})
        return found

    wait_until(lambda: status().get("currentHealthy") == 1, "the budget is counted")
    (pod,) = view(cluster, node).gpu_pods

    wanted = f"would wait for budget kept-{node}: "
    reason = cluster.refusals([pod])[pod.uid]
    assert reason.startswith((wanted, f"budget kept-{node} never allows an eviction")), reason
    assert cluster.evict(pod).outcome is EvictionOutcome.BLOCKED


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {"grapnel.dev/node-job": "x"}}, id="a run on a node"),
        pytest.param(
            {"labels": {"grapnel.dev/node-daemon": "pod"}, "ownerReferences": [owner("example.com/v1")]},
            id="the node daemon, of a made-up DaemonSet",
        ),
        pytest.param({"ownerReferences": [owner("example.com/v1")]}, id="a pod of a made-up DaemonSet"),
    ],
)
def test_the_author_of_a_pod_does_not_hide_it_by_what_it_says_of_itself(stage: Stage, metadata: dict[str, Any]) -> None:
    """A pod with eight GPUs in any namespace was neither waited for nor evicted, and the driver was taken from it."""
    node, namespace = stage.make_node(), f"team-{next(_NUMBERS)}"
    cluster = stage.connect(rules=replace(GPU_RULES, takes_all=True))
    stage.kubectl("create", "namespace", namespace)
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "8"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": namespace, **metadata},
        "spec": {"nodeName": node, "containers": [container]},
    }
    stage.kubectl("create", "-f", "-", data=pod)

    (found,) = view(cluster, node).gpu_pods

    assert (found.name, found.is_mirror_or_daemon) == ("train", False)
    assert cluster.evict(found).outcome is EvictionOutcome.EVICTED
