"""A pod leaves its node when its replacement is ready elsewhere; controllers and scheduler are the real ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.spec.values.label_selector import parse_selector
from provision.rollout.interface.cluster import Eviction, EvictionOutcome
from provision.rollout.model import NodeView
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import GPU, GPU_RULES, wait_until

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.rollout.model import GpuPod
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

RULES = replace(GPU_RULES, first=parse_selector("tier=serving"))
# No kubelet reports for these nodes: those that were ready would be found silent, and so would their pods.
NOT_READY = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
SILENT = ("not-ready", "unreachable")
ALWAYS_ONE = {"maxSurge": 1, "maxUnavailable": 0}


class Shop:
    """A workload of pods with a GPU, on nodes of its own, and the kubelets of those nodes."""

    def __init__(self, stage: Stage, nodes: int) -> None:
        self.stage = stage
        self.nodes: list[str] = []
        self.name = ""
        for _ in range(nodes):
            self.add_node()

    def add_node(self) -> str:
        """Give it one more node; return the node's name."""
        node = self.stage.make_node()
        self.nodes.append(node)
        self.name = self.name or f"shop-{node}"
        self.stage.kubectl("label", "node", node, f"pool={self.name}")
        self.stage.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", NOT_READY)
        return node

    def deploy(self, kind: str = "Deployment", replicas: int = 1, **spec: object) -> None:
        labels = {"app": self.name, "tier": "serving"}
        pod = {
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}],
            "nodeSelector": {"pool": self.name},
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"key": f"node.kubernetes.io/{each}", "operator": "Exists"} for each in SILENT],
        }
        template = {"metadata": {"labels": labels}, "spec": pod}
        common = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        thing = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": self.name}, "spec": common | spec}
        self.stage.kubectl("create", "-f", "-", data=thing)

    def guard(self, needs: int) -> None:
        """Have a disruption budget that needs so many pods."""
        spec = {"minAvailable": needs, "selector": {"matchLabels": {"app": self.name}}}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": self.name}}
        self.stage.kubectl("create", "-f", "-", data=budget | {"spec": spec})

    def pods(self) -> list[dict[str, Any]]:
        """Return its pods that are on a node."""
        found = self.stage.get("pods", "-l", f"app={self.name}")["items"]
        return [each for each in found if each["spec"].get("nodeName") and "deletionTimestamp" not in each["metadata"]]

    def run_all(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many pods and have them run; return them."""
        self.wait_for(count, f"{count} pods of {self.name} are on nodes")
        for pod in self.pods():
            self.stage.run_pod(pod["metadata"]["name"])
        return self.pods()

    def wait_for(self, count: int, what: str) -> None:
        """Wait for so many pods; fail with what there is of pods and nodes, and what controllers and scheduler say."""
        wait_until(lambda: len(self.pods()) == count, what, explain=self.describe)

    def describe(self) -> str:
        pods = self.stage.kubectl("describe", "pods", "-l", f"app={self.name}")
        nodes = self.stage.kubectl("describe", "nodes", "-l", f"pool={self.name}")
        events = self.stage.kubectl("events")
        lines = (line for line in events.splitlines() if f"/{self.name}" in line)
        return "\n".join([pods, nodes, *lines])

    @property
    def restarts(self) -> int:
        """How often its template was changed."""
        found: int = self.stage.get("deployment", self.name)["metadata"]["generation"]
        return found - 1


def drain(cluster: KubernetesCluster, node: str) -> list[GpuPod]:
    """Cordon a node; return its pods."""
    cluster.observe([node])
    cluster.write(node, RECORD, cordoned=True)
    return pods_on(cluster, node)


def pods_on(cluster: KubernetesCluster, node: str) -> list[GpuPod]:
    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    return list(seen.gpu_pods)


def blocked(reason: str) -> Eviction:
    return Eviction(outcome=EvictionOutcome.BLOCKED, reason=reason)


def test_a_deployment_of_one_replica_is_never_without_a_ready_pod(stage: Stage) -> None:
    shop, cluster = Shop(stage, 2), stage.connect(rules=RULES)
    shop.deploy()
    shop.guard(1)  # evictions would wait for ever
    (old,) = shop.run_all(1)
    node = old["spec"]["nodeName"]
    (other,) = set(shop.nodes) - {node}
    (pod,) = drain(cluster, node)

    assert cluster.refusals([pod]) == {}
    assert cluster.evict(pod) == blocked(
        f"waits for Deployment {shop.name}, which is restarted, to start its replacement"
    )

    shop.wait_for(2, "the replacement is there")
    (new,) = (each for each in shop.pods() if each["metadata"]["name"] != pod.name)
    assert new["spec"]["nodeName"] == other
    name = f"default/{new['metadata']['name']}"
    assert cluster.evict(pod) == blocked(f"waits for its replacement {name} on node {other} to be ready")
    assert [each.name for each in pods_on(cluster, node)] == [pod.name]

    stage.run_pod(new["metadata"]["name"])

    wait_until(lambda: not pods_on(cluster, node), "the Deployment ends the pod")
    assert [each["metadata"]["name"] for each in shop.pods()] == [new["metadata"]["name"]]


def test_an_engine_that_follows_one_that_was_killed_does_not_restart_it_a_second_time(stage: Stage) -> None:
    shop, first = Shop(stage, 1), stage.connect(rules=RULES)
    shop.deploy(replicas=2, strategy={"rollingUpdate": ALWAYS_ONE})
    shop.run_all(2)
    other = shop.add_node()  # only now: a cordon comes too late for a scheduler that is quick
    pods = drain(first, shop.nodes[0])
    assert len(pods) == 2

    first.evict_all(pods)  # both of them, one after the other
    following = stage.connect(rules=RULES)
    following.evict_all(pods)
    shop.wait_for(3, "one replacement is there")
    answers = following.evict_all(pods)

    assert shop.restarts == 1
    (new,) = (each for each in shop.pods() if each["spec"]["nodeName"] == other)
    reason = f"waits for its replacement default/{new['metadata']['name']} on node {other} to be ready"
    assert set(answers.values()) == {blocked(reason)}


def test_a_replacement_that_finds_no_node_is_named_with_what_the_scheduler_says(stage: Stage) -> None:
    shop, cluster = Shop(stage, 1), stage.connect(rules=RULES)
    shop.deploy()
    shop.run_all(1)
    (pod,) = drain(cluster, shop.nodes[0])
    cluster.evict(pod)

    wait_until(lambda: "which has no node yet: " in cluster.evict(pod).reason, "the scheduler has found no node")

    assert "node(s) were unschedulable" in cluster.evict(pod).reason
    assert [each.name for each in pods_on(cluster, shop.nodes[0])] == [pod.name]


def test_of_a_deployment_on_several_nodes_no_second_pod_is_evicted_before_the_first_is_back(stage: Stage) -> None:
    shop, cluster = Shop(stage, 1), stage.connect(rules=RULES)
    (node,) = shop.nodes
    shop.deploy(replicas=2)
    shop.run_all(2)
    shop.add_node()
    stage.kubectl("cordon", node)
    stage.kubectl("scale", "deployment", shop.name, "--replicas=3")
    shop.run_all(3)
    stage.kubectl("uncordon", node)
    shop.guard(2)
    wait_until(
        lambda: stage.get("pdb", shop.name).get("status", {}).get("disruptionsAllowed") == 1, "the budget is counted"
    )
    pods = drain(cluster, node)
    assert len(pods) == 2

    assert cluster.refusals(pods) == {}
    answers = list(cluster.evict_all(pods).values())

    waits = f"waits until all pods of Deployment {shop.name} are ready, which 2 of 3 are"
    assert answers == [Eviction(outcome=EvictionOutcome.EVICTED), blocked(waits)]
    assert shop.restarts == 1, "it was scaled"
    shop.run_all(3)
    wait_until(lambda: cluster.evict(pods[1]).outcome is not EvictionOutcome.BLOCKED, "the budget allows the next one")


@pytest.mark.parametrize(
    ("kind", "spec", "reason"),
    [
        pytest.param(
            "Deployment",
            {"strategy": {"type": "Recreate"}},
            "the strategy of Deployment {name} is Recreate: it starts no pod before it ends another one",
            id="Recreate",
        ),
        pytest.param(
            "Deployment",
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
            "maxSurge of Deployment {name} is 0: it starts no pod before it ends another one",
            id="no surge",
        ),
        pytest.param("StatefulSet", {"serviceName": "x"}, "StatefulSet/{name} starts no second one", id="StatefulSet"),
    ],
)
def test_where_no_replacement_can_come_first_the_declaration_decides(
    stage: Stage, kind: str, spec: dict[str, object], reason: str
) -> None:
    shop = Shop(stage, 2)
    shop.deploy(kind, **spec)
    (old,) = shop.run_all(1)
    keeping = stage.connect(rules=replace(RULES, keeps_unreplaced=True))
    (pod,) = drain(keeping, old["spec"]["nodeName"])
    why = reason.format(name=shop.name)

    assert keeping.evict(pod) == blocked(f"its replacement cannot come first: {why}")
    planned = stage.connect(rules=RULES).refusals([pod])
    assert planned == {pod.uid: f"its replacement cannot come first ({why}): it is evicted as all others"}

    assert stage.connect(rules=RULES).evict(pod).outcome is EvictionOutcome.EVICTED


def test_a_paused_deployment_is_named_and_left_alone(stage: Stage) -> None:
    shop, cluster = Shop(stage, 2), stage.connect(rules=RULES)
    shop.deploy()
    (old,) = shop.run_all(1)
    stage.kubectl("rollout", "pause", f"deployment/{shop.name}")
    wait_until(
        lambda: (
            stage.get("deployment", shop.name)["status"].get("observedGeneration")
            == stage.get("deployment", shop.name)["metadata"]["generation"]
        ),
        "its controller knows",
    )
    before = json.dumps(stage.get("deployment", shop.name)["spec"], sort_keys=True)
    (pod,) = drain(cluster, old["spec"]["nodeName"])

    reason = f"Deployment {shop.name} is paused, and starts no replacement: `kubectl rollout resume` ends that"
    assert cluster.evict(pod) == blocked(reason)
    assert json.dumps(stage.get("deployment", shop.name)["spec"], sort_keys=True) == before


def test_a_pod_that_only_calls_itself_one_of_a_deployment_restarts_nothing(stage: Stage) -> None:
    """Whoever may make pods in a namespace could have every Deployment there restarted, with rights of grapnel's."""
    shop, cluster = Shop(stage, 2), stage.connect(rules=RULES)
    shop.deploy()
    (real,) = shop.run_all(1)
    node = real["spec"]["nodeName"]
    labels = real["metadata"]["labels"]
    owner = {**real["metadata"]["ownerReferences"][0], "apiVersion": "example.com/v1", "uid": "made-up"}
    forged = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"forged-{node}", "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}],
        },
    }
    stage.kubectl("create", "-f", "-", data=forged)
    (pod,) = (each for each in drain(cluster, node) if each.name == f"forged-{node}")

    assert cluster.refusals([pod])[pod.uid].startswith("its replacement cannot come first (ReplicaSet ")
    assert cluster.evict(pod).outcome is EvictionOutcome.EVICTED
    assert shop.restarts == 0
