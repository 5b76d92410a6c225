"""The adapter against a real API server: state, cordon, pods, budgets, RuntimeClass."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from provision.cluster import Machine
from provision.rollout.errors import ConflictError, RuntimeClassError
from provision.rollout.interface.cluster import EvictionOutcome, NodeProblem
from provision.rollout.model import GpuPod, NodeView, Phase, Record
from tests.provision.cluster.stage import wait_until

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
RECORD = Record(phase=Phase.CORDON, target="535.309.01", origin="535.261.03", began=NOW, since=NOW)


@pytest.fixture
def cluster(stage: Stage) -> KubernetesCluster:
    return stage.connect()


def view(cluster: KubernetesCluster, node: str) -> NodeView:
    """Return what is seen of a node, without the identifier that its object got."""
    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    return replace(seen, uid="")


def pod_of(cluster: KubernetesCluster, node: str, name: str) -> GpuPod:
    return next(pod for pod in view(cluster, node).gpu_pods if pod.name == name)


def test_a_node_without_history_is_in_service(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()

    assert view(cluster, node) == NodeView(name=node, record=None, is_cordoned=False, is_ready=True)


def test_record_cordon_and_labels_are_written_together_and_taken_away_together(
    stage: Stage, cluster: KubernetesCluster
) -> None:
    node = stage.make_node(rack="b7")
    cluster.observe([node])

    cluster.write(node, RECORD, cordoned=True)

    assert view(stage.connect(), node) == NodeView(name=node, record=RECORD, is_cordoned=True, is_ready=True)
    stored = stage.get("node", node)
    assert stored["metadata"]["labels"] == {
        "rack": "b7",
        "grapnel.dev/upgrade": "cordon",
        "nvidia.com/gpu-driver-upgrade-state": "cordon-required",
    }
    assert json.loads(stored["metadata"]["annotations"]["grapnel.dev/upgrade"])["target"] == "535.309.01"

    cluster.write(node, None, cordoned=False)

    stored = stage.get("node", node)
    assert stored["metadata"]["labels"] == {"rack": "b7"}
    assert "grapnel.dev/upgrade" not in stored["metadata"].get("annotations", {})
    assert "unschedulable" not in stored["spec"]


def test_a_write_without_a_word_on_the_cordon_leaves_it(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    stage.kubectl("cordon", node)
    cluster.observe([node])

    cluster.write(node, replace(RECORD, phase=Phase.DRAIN))

    assert view(cluster, node).is_cordoned


def test_of_two_writers_the_second_is_told(stage: Stage, cluster: KubernetesCluster) -> None:
    node, other = stage.make_node(), stage.connect()
    cluster.observe([node])
    other.observe([node])

    other.write(node, replace(RECORD, target="550.163.01"), cordoned=True)
    with pytest.raises(ConflictError, match=rf"node {node} of .* was changed by somebody else meanwhile"):
        cluster.write(node, RECORD, cordoned=True)

    seen = view(cluster, node).record
    assert seen is not None
    assert seen.target == "550.163.01"
    cluster.write(node, RECORD)  # it has been observed again: this is a new decision


def test_a_cordon_by_hand_meanwhile_is_a_conflict_for_who_sets_it_only(
    stage: Stage, cluster: KubernetesCluster
) -> None:
    node = stage.make_node()
    cluster.observe([node])
    stage.kubectl("cordon", node)

    with pytest.raises(ConflictError):
        cluster.write(node, RECORD, cordoned=True)
    cluster.write(node, RECORD)

    assert view(cluster, node).record == RECORD


def test_what_others_write_on_the_node_does_not_disturb(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    cluster.observe([node])
    stage.kubectl("label", "node", node, "weather=fine")

    cluster.write(node, RECORD, cordoned=True)

    assert view(cluster, node).record == RECORD
    assert stage.get("node", node)["metadata"]["labels"]["weather"] == "fine"


def test_a_node_that_left_and_came_back_is_another_node(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    cluster.observe([node])
    stored = stage.get("node", node)
    stage.kubectl("delete", "node", node)

    with pytest.raises(ConflictError):
        cluster.write(node, RECORD, cordoned=True)

    fresh = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": stored["status"]}
    stage.kubectl("create", "-f", "-", data=fresh)
    with pytest.raises(ConflictError):
        cluster.write(node, RECORD, cordoned=True)


def test_a_broken_record_is_a_problem_of_its_node_only(stage: Stage, cluster: KubernetesCluster) -> None:
    broken, sound = stage.make_node(), stage.make_node()
    stage.kubectl("annotate", "node", broken, "grapnel.dev/upgrade={")

    seen = cluster.observe([broken, sound])

    problem = seen[broken]
    assert isinstance(problem, NodeProblem)
    assert problem.message.startswith(f"annotation grapnel.dev/upgrade of node {broken} of cluster grapnel-lab")
    assert f"kubectl annotate node {broken} grapnel.dev/upgrade-" in problem.hint
    assert isinstance(seen[sound], NodeView)


def test_a_node_that_is_not_there_is_a_problem(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()

    seen = cluster.observe([node, "gone"])

    problem = seen["gone"]
    assert isinstance(problem, NodeProblem)
    assert problem.message == f"gone is not a node of {cluster.name}"
    stage.kubectl("delete", "node", node)
    assert isinstance(cluster.observe([node])[node], NodeProblem)


def test_a_machine_is_found_by_an_address_of_its_node_and_not_by_what_it_says(stage: Stage) -> None:
    node = stage.make_node(address="10.99.0.1", machine_id="a" * 32)
    there = Machine(addresses=frozenset({"10.99.0.1"}), machine_id="a" * 32)
    liar = Machine(addresses=frozenset({"10.99.0.2"}), hostname=node, machine_id="a" * 32)

    cluster = stage.connect(machines={"rack7-gpu1": there, "rack7-gpu2": liar})

    seen = cluster.observe([node, "rack7-gpu2"])
    assert isinstance(seen[node], NodeView)
    assert isinstance(seen["rack7-gpu2"], NodeProblem)
    assert view(cluster, "rack7-gpu1").name == "rack7-gpu1"


@pytest.mark.parametrize("nodes", [1, 5], ids=["asked for by node", "from the list of all"])
def test_pods_with_a_gpu_are_seen_and_others_not(stage: Stage, cluster: KubernetesCluster, nodes: int) -> None:
    names = [stage.make_node() for _ in range(nodes)]
    waiting, running, over, idle = (stage.make_pod(names[0], gpus=gpus) for gpus in ("1", "2", "1", ""))
    stage.run_pod(running)
    stage.run_pod(idle)
    stage.set_pod_status(over, {"phase": "Succeeded"})

    seen = cluster.observe(names)[names[0]]

    assert isinstance(seen, NodeView)
    assert {pod.name for pod in seen.gpu_pods} == {waiting, running}


def test_an_evicted_pod_ends_in_its_own_time(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    name = stage.make_pod(node)
    stage.run_pod(name)
    pod = pod_of(cluster, node, name)

    assert cluster.evict(pod).outcome is EvictionOutcome.EVICTED

    leaving = pod_of(cluster, node, name)
    assert leaving.is_terminating
    assert stage.get("pod", name)["metadata"]["deletionGracePeriodSeconds"] == 30
    stage.kubectl("delete", "pod", name, "--force", "--grace-period=0")
    assert cluster.evict(pod).outcome is EvictionOutcome.GONE


def test_a_pod_of_the_same_name_that_came_after_is_spared(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    name = stage.make_pod(node)
    old = pod_of(cluster, node, name)
    stage.kubectl("delete", "pod", name, "--force", "--grace-period=0")
    stage.make_pod(node, name=name)

    assert cluster.evict(old).outcome is EvictionOutcome.GONE
    assert not pod_of(cluster, node, name).is_terminating


def test_a_disruption_budget_holds_an_eviction_back_until_it_allows_it(
    stage: Stage, cluster: KubernetesCluster
) -> None:
    node = stage.make_node()
    pods = [stage.make_pod(node, labels={"app": "web"}) for _ in range(2)]
    stage.kubectl("create", "poddisruptionbudget", "web-budget", "--selector=app=web", "--min-available=2")
    for pod in pods:
        stage.run_pod(pod)
    wait_until(
        lambda: stage.get("pdb", "web-budget")["status"].get("currentHealthy") == 2, "two healthy pods in the budget"
    )

    blocked = cluster.evict(pod_of(cluster, node, pods[0]))

    assert blocked.outcome is EvictionOutcome.BLOCKED
    assert "web-budget" in blocked.reason
    third = stage.make_pod(node, labels={"app": "web"})
    stage.run_pod(third)
    wait_until(
        lambda: stage.get("pdb", "web-budget")["status"]["disruptionsAllowed"] == 1, "one disruption that is allowed"
    )
    assert cluster.evict(pod_of(cluster, node, pods[0])).outcome is EvictionOutcome.EVICTED


def test_a_pod_with_two_budgets_is_blocked_with_that_reason(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    name = stage.make_pod(node, labels={"app": "twice"})
    stage.run_pod(name)
    for budget in ("first", "second"):
        stage.kubectl("create", "poddisruptionbudget", budget, "--selector=app=twice", "--min-available=1")

    answer = cluster.evict(pod_of(cluster, node, name))

    assert answer.outcome is EvictionOutcome.BLOCKED
    assert "several disruption budgets select it" in answer.reason


def test_the_runtime_class_is_created_once_and_never_taken_from_others(
    stage: Stage, cluster: KubernetesCluster
) -> None:
    assert not cluster.has_runtime_class("made", "made-handler")
    assert cluster.ensure_runtime_class("made", "made-handler")
    assert cluster.has_runtime_class("made", "made-handler")
    assert not cluster.ensure_runtime_class("made", "made-handler")
    stored = stage.get("runtimeclass", "made")
    assert stored["handler"] == "made-handler"
    assert stored["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "grapnel"}

    foreign = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "theirs"}, "handler": "b"}
    stage.kubectl("create", "-f", "-", data=foreign)
    assert not cluster.ensure_runtime_class("theirs", "b")
    assert "labels" not in stage.get("runtimeclass", "theirs")["metadata"]
    with pytest.raises(RuntimeClassError, match=r"RuntimeClass theirs of .* has handler b, not c") as raised:
        cluster.ensure_runtime_class("theirs", "c")
    assert "kubectl delete runtimeclass theirs" in raised.value.hint
