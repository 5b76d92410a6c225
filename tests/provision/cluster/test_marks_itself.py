"""Labels, taints and RuntimeClasses on a real API server: set, changed by others, taken back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.model import NodeResult, Status
from provision.apply.removal import ALL_PARTS
from provision.cluster.kubernetes.nodes.marks import AS_DECLARED
from provision.cluster.kubernetes.nodes.node_marks import MARKS
from provision.rollout.changes.cluster_removal import plan_cluster_removal, take_back
from provision.rollout.changes.removing import Removing
from provision.rollout.interface.node_marks import NO_MARKS, MarkChange, NodeMarks
from tests.provision.cluster.counting import count

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

GPU = ("nvidia.com/gpu", "NoSchedule")
WANTED = NodeMarks({"example.com/pool": "training"}, {GPU: "", ("site.example/reserved", "NoExecute"): "x"})
THEIRS = {"key": "site.example/theirs", "effect": "NoSchedule", "value": "y"}


@pytest.fixture
def cluster(stage: Stage) -> KubernetesCluster:
    return stage.connect()


def marked(stage: Stage, cluster: KubernetesCluster, wanted: NodeMarks = WANTED) -> str:
    """Make a Node and give it its marks; return its name."""
    node = stage.make_node(rack="b7")
    cluster.observe([node])
    assert cluster.set_marks({node: wanted}) == {}
    return node


def labels(stage: Stage, node: str) -> dict[str, str]:
    found: dict[str, str] = stage.get("node", node)["metadata"]["labels"]
    return found


def taints(stage: Stage, node: str) -> list[dict[str, Any]]:
    """Return a node's taints, without Kubernetes' own: it has a new node not ready for a moment."""
    found = stage.get("node", node)["spec"].get("taints", [])
    theirs = ({**each, "timeAdded": None} for each in found if not each["key"].startswith("node.kubernetes.io/"))
    return sorted(theirs, key=lambda taint: str(taint["key"]))


def keys(stage: Stage, node: str) -> list[str]:
    return [taint["key"] for taint in taints(stage, node)]


def test_labels_and_taints_are_set_beside_those_of_others(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node(rack="b7")
    stage.kubectl("taint", "node", node, "site.example/theirs=y:NoSchedule")
    cluster.observe([node])

    assert cluster.compare_marks({node: WANTED})[node].changes == (
        "label example.com/pool=training",
        "taint nvidia.com/gpu:NoSchedule",
        "taint site.example/reserved:NoExecute=x",
    )
    assert cluster.set_marks({node: WANTED}) == {}

    assert labels(stage, node) == {"rack": "b7", "example.com/pool": "training"}
    assert keys(stage, node) == ["nvidia.com/gpu", "site.example/reserved", "site.example/theirs"]
    cluster.observe([node])
    assert cluster.compare_marks({node: WANTED}) == {}


def test_that_a_node_is_as_declared_is_withdrawn_with_one_request_for_each_that_says_so(
    stage: Stage, cluster: KubernetesCluster
) -> None:
    claimed, other = stage.make_node(rack="b7"), stage.make_node(rack="b7")
    stage.kubectl("annotate", "node", claimed, f"{AS_DECLARED}=f00")
    cluster.observe([claimed, other])
    counting = count(cluster)
    cluster.withdraw_claims([claimed, other])
    cluster.withdraw_claims([claimed, other])
    assert AS_DECLARED not in stage.get("node", claimed)["metadata"].get("annotations", {})
    assert counting.methods() == ["PATCH"]


def test_setting_them_again_writes_nothing(stage: Stage, cluster: KubernetesCluster) -> None:
    node = marked(stage, cluster)
    again = stage.connect()
    counting = count(again)  # the Node's version would not do: the controllers of the cluster write to it as well

    assert again.observe([node])
    assert again.set_marks({node: WANTED}) == {}

    assert set(counting.methods()) == {"GET"}


def test_a_change_of_the_declaration_takes_back_what_it_does_not_have_any_more(
    stage: Stage, cluster: KubernetesCluster
) -> None:
    node = marked(stage, cluster)

    cluster.set_marks({node: NodeMarks({"example.com/pool": "serving"}, {})})

    assert labels(stage, node) == {"rack": "b7", "example.com/pool": "serving"}
    assert keys(stage, node) == []


def test_what_somebody_else_has_set_is_a_conflict_and_stays(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    stage.kubectl("label", "node", node, "example.com/pool=theirs")
    cluster.observe([node])

    (conflict,) = cluster.compare_marks({node: WANTED})[node].conflicts
    cluster.set_marks({node: WANTED})

    assert conflict == "label example.com/pool is 'theirs', set by somebody else, and declared as 'training'"
    assert labels(stage, node)["example.com/pool"] == "theirs"
    cluster.set_marks({node: NO_MARKS})
    assert labels(stage, node)["example.com/pool"] == "theirs", "it was never ours"


def test_removal_gives_a_node_back_as_it_was(stage: Stage, cluster: KubernetesCluster) -> None:
    node = marked(stage, cluster)
    stage.kubectl("taint", "node", node, "site.example/theirs=y:NoSchedule")
    removing = Removing(parts=ALL_PARTS)
    cluster.observe([node])

    planned = plan_cluster_removal(removing, cluster, [node])
    assert planned.marks[node].changes == (
        "no label example.com/pool",
        "no taint nvidia.com/gpu:NoSchedule",
        "no taint site.example/reserved:NoExecute",
    )
    taken = take_back(cluster, planned, [NodeResult(node, Status.REMOVED)], "ada@laptop")

    assert (list(taken.marks), taken.failed) == ([node], ())
    assert labels(stage, node) == {"rack": "b7"}
    assert taints(stage, node) == [{**THEIRS, "timeAdded": None}]
    assert MARKS not in stage.get("node", node)["metadata"].get("annotations", {})
    cluster.observe([node])
    assert not plan_cluster_removal(removing, cluster, [node]), "a second removal finds nothing"


def test_removal_leaves_what_somebody_changed_since_and_says_so(stage: Stage, cluster: KubernetesCluster) -> None:
    node = marked(stage, cluster)
    stage.kubectl("label", "--overwrite", "node", node, "example.com/pool=mine")
    cluster.observe([node])

    planned = plan_cluster_removal(Removing(parts=ALL_PARTS), cluster, [node])
    take_back(cluster, planned, [NodeResult(node, Status.REMOVED)], "ada@laptop")

    kept = (
        f"node {node} keeps what somebody has changed: label example.com/pool is 'mine', and grapnel had set 'training'"
    )
    assert planned.stays == (kept,)
    assert labels(stage, node)["example.com/pool"] == "mine"
    assert keys(stage, node) == []


def test_several_nodes_are_read_together_and_those_without_marks_are_left_out(
    stage: Stage, cluster: KubernetesCluster
) -> None:
    nodes = [marked(stage, cluster) for _ in range(9)]
    other = stage.make_node()
    cluster.observe([*nodes, other])

    found = cluster.compare_marks(dict.fromkeys([*nodes, other], NO_MARKS))

    assert set(found) == set(nodes)
    assert all(
        isinstance(each, MarkChange) and len(each.changes) == len(("label", "taint", "taint"))
        for each in found.values()
    )


def make_class(stage: Stage, name: str, **labels: str) -> None:
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": labels},
        "handler": name,
    }
    stage.kubectl("create", "-f", "-", data=body)


def classes(stage: Stage) -> list[str]:
    return stage.kubectl("get", "runtimeclass", "-o", "jsonpath={.items[*].metadata.name}").split()


def test_a_runtime_class_of_ours_goes_once_no_pod_names_it(stage: Stage, cluster: KubernetesCluster) -> None:
    node = stage.make_node()
    cluster.ensure_runtime_class("removed", "removed")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user-of-removed"},
        "spec": {"nodeName": node, "runtimeClassName": "removed", "containers": [{"name": "main", "image": "x"}]},
    }
    stage.kubectl("create", "-f", "-", data=pod)
    removing = Removing(parts=ALL_PARTS, classes=("removed",))

    busy = plan_cluster_removal(removing, cluster, [])
    assert (busy.classes, busy.stays) == (
        (),
        ("RuntimeClass removed stays: pods name it: default/user-of-removed",),
    )
    assert cluster.remove_runtime_class("removed") == "pods name it: default/user-of-removed"
    stage.set_pod_status("user-of-removed", {"phase": "Succeeded"})

    free = plan_cluster_removal(removing, cluster, [])
    assert free.classes == ("removed",)
    taken = take_back(cluster, free, [], "ada@laptop")

    assert (taken.classes, taken.stays) == (("removed",), ())
    assert "removed" not in classes(stage)
    assert cluster.why_runtime_class_stays("removed") is None
    assert cluster.remove_runtime_class("removed") == "", "whoever was killed here asks again"


@pytest.mark.parametrize("found", [{}, {"app.kubernetes.io/managed-by": "Helm"}], ids=["no label", "another owner"])
def test_a_runtime_class_that_others_made_stays(
    found: dict[str, str], stage: Stage, cluster: KubernetesCluster
) -> None:
    name = f"theirs-{len(found)}"
    make_class(stage, name, **found)

    assert "grapnel did not make it" in (cluster.why_runtime_class_stays(name) or "")
    assert "grapnel did not make it" in cluster.remove_runtime_class(name)
    assert name in classes(stage)


def test_the_annotation_says_what_is_ours(stage: Stage, cluster: KubernetesCluster) -> None:
    node = marked(stage, cluster)

    assert json.loads(stage.get("node", node)["metadata"]["annotations"][MARKS]) == {
        "labels": {"example.com/pool": "training"},
        "taints": {"nvidia.com/gpu:NoSchedule": "", "site.example/reserved:NoExecute": "x"},
    }
