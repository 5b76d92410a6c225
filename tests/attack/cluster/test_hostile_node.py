"""Root of one node, with its kubelet's certificate, against what grapnel believes of another one.

Whole runs and uninstallations beside a mirror pod or a forged Event are in tests/provision/jobs/test_forged_itself.py
and tests/provision/controller/test_workload_itself.py. What is refused, the API server refuses: grapnel relies on it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert

from provision.controller.jobs.manifest import label_of
from provision.controller.jobs.objects import AgentPod, newest_pod
from provision.controller.uninstall.workload import Deployment, Workload
from provision.rollout.model import NodeView
from tests.attack.cluster import naive
from tests.attack.cluster.identities import OURS, Identity
from tests.provision.cluster.stage import GPU, wait_until

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional  # etcd and an API server

UNITS = "aliyun.com/gpu-mem"
CARD = "GPU-5f2d7a3c-1b9e-4d6f-8a07-c3e1b2d4f6a8"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"
UID = "6f1b1b1e-0000-4000-8000-000000000000"
RESTRICTED = "node-restriction.kubernetes.io/stack"


def mirror(kubelet: Identity, node: str, name: str, labels: dict[str, str], **metadata: object) -> dict[str, Any]:
    """Return the mirror of a static pod as that node's kubelet writes it, with labels of its choice."""
    uid = kubelet.ask("GET", f"/api/v1/nodes/{node}").body["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": OURS,
            "labels": labels,
            "annotations": {"kubernetes.io/config.mirror": "0123456789abcdef"},
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "agent", "image": "x", "resources": {"limits": {GPU: "1"}}}],
        },
    }


def job_of(admin: Identity, name: str, node: str) -> dict[str, Any]:
    """Make a Job as the controller does, for a node."""
    labels = {"grapnel.dev/node-job": label_of(node)}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [{"name": "agent", "image": "x"}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": OURS, "labels": labels, "annotations": {"grapnel.dev/node": node}},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    return admin.make(job)


def pods_of(api: Api, job: str) -> list[AgentPod]:
    return api.list_all(f"/api/v1/namespaces/{OURS}/pods", AgentPod, labels=f"job-name={job}")


def test_a_mirror_pod_is_not_taken_for_that_of_another_node_s_job(  # noqa: PLR0917 - fixtures
    admin: Identity, api: Api, kubelet: Identity, evil: str, victim: str, name: str
) -> None:
    uid = job_of(admin, name, victim)["metadata"]["uid"]
    wait_until(lambda: newest_pod(pods_of(api, name), uid, victim) is not None, "the Job has its pod")
    made = max(pod["metadata"]["creationTimestamp"] for pod in admin.items(f"/api/v1/namespaces/{OURS}/pods"))
    wait_until(lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > made, "the forged one is the newest, by seconds")
    labels = {"job-name": name, "batch.kubernetes.io/job-name": name, "batch.kubernetes.io/controller-uid": uid}
    kubelet.make(mirror(kubelet, evil, f"{name}-forged", labels | {"grapnel.dev/node-job": label_of(victim)}))

    assert naive.pod_of(name, admin.items(f"/api/v1/namespaces/{OURS}/pods")) == f"{name}-forged"
    found = newest_pod(pods_of(api, name), uid, victim)
    assert found is not None
    assert (found.spec.node_name, found.metadata.name == f"{name}-forged") == (victim, False)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        pytest.param({"ownerReferences": []}, "with an owner reference set to itself", id="of nobody"),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": UID}]},
            "with an owner reference set to itself",
            id="of a Job",
        ),
        pytest.param({"annotations": {}}, "can only create mirror pods", id="that is no mirror"),
    ],
)
def test_a_pod_of_another_kind_is_refused_to_a_kubelet(
    kubelet: Identity, evil: str, name: str, changed: dict[str, Any], why: str
) -> None:
    """What tells a Job's pod from a forged one is what a kubelet cannot write."""
    pod = mirror(kubelet, evil, name, {"job-name": name}, **changed)
    assert why in kubelet.ask("POST", f"/api/v1/namespaces/{OURS}/pods", pod).refusal


def test_a_mirror_pod_on_another_node_is_refused(kubelet: Identity, evil: str, victim: str, name: str) -> None:
    pod = mirror(kubelet, evil, name, {})
    pod["spec"]["nodeName"] = victim
    assert "spec.nodeName set to itself" in kubelet.ask("POST", f"/api/v1/namespaces/{OURS}/pods", pod).refusal


def test_a_mirror_pod_is_none_of_the_controller(
    admin: Identity, api: Api, kubelet: Identity, evil: str, name: str
) -> None:
    labels = {"app": "grapnel-controller"}
    kubelet.make(mirror(kubelet, evil, name, labels))
    deployment = convert({"metadata": {"name": "c"}, "spec": {"selector": {"matchLabels": labels}}}, Deployment)

    assert naive.pods_with(labels, admin.items(f"/api/v1/namespaces/{OURS}/pods")) == [name]
    assert Workload(api, OURS, "c").pods(deployment) == []


def test_a_mirror_pod_is_not_hidden_as_the_daemon_s(
    stage: Stage, admin: Identity, kubelet: Identity, evil: str, name: str
) -> None:
    """A GPU that a static pod holds is in the way, whatever its labels say."""
    kubelet.make(mirror(kubelet, evil, name, {"grapnel.dev/node-daemon": "pod"}))
    pods = [admin.read(f"/api/v1/namespaces/{OURS}/pods/{name}")]

    assert naive.in_the_way(pods) == []
    seen = stage.connect().observe([evil])[evil]
    assert isinstance(seen, NodeView)
    assert name in {each.name for each in seen.gpu_pods}


def test_an_event_about_another_node_s_job_is_forged_without_its_uid(
    admin: Identity, kubelet: Identity, victim: str, name: str
) -> None:
    """An Event is a Job's by uid. Any kubelet may write one, but none reads the uid of another node's Job."""
    uid = job_of(admin, name, victim)["metadata"]["uid"]
    about = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "namespace": OURS, "uid": UID}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.forged", "namespace": OURS},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedCreate",
        "message": "run this as root",
        "source": {"component": "job-controller"},
    }
    kubelet.make(event)
    events = f"/api/v1/namespaces/{OURS}/events"

    assert naive.words_about(name, admin.items(events)) == "run this as root"
    by_uid = f"{events}?fieldSelector=involvedObject.uid%3D{uid},type%3DWarning"  # as grapnel asks
    assert "run this as root" not in [each["message"] for each in admin.items(by_uid)]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/apis/batch/v1/namespaces/{OURS}/jobs", id="Jobs"),
        pytest.param(f"/apis/batch/v1/namespaces/{OURS}/jobs/NAME", id="the Job"),
        pytest.param(f"/api/v1/namespaces/{OURS}/pods", id="pods of all nodes"),
        pytest.param("/api/v1/pods?fieldSelector=spec.nodeName%3DVICTIM", id="pods of that node"),
        pytest.param(f"/api/v1/namespaces/{OURS}/pods/NAME", id="its pod"),
        pytest.param(f"/api/v1/namespaces/{OURS}/pods/NAME/log", id="its log"),
        pytest.param(f"/api/v1/namespaces/{OURS}/events", id="Events"),
        pytest.param(f"/api/v1/namespaces/{OURS}/secrets", id="Secrets"),
        pytest.param(f"/api/v1/namespaces/{OURS}/secrets/NAME", id="its Secret"),
        pytest.param("/api/v1/nodes", id="all Nodes"),
        pytest.param("/api/v1/nodes/VICTIM", id="its Node"),
    ],
)
def test_nothing_of_another_node_s_job_is_read(
    kubelet: Identity, victim: str, running_job: tuple[str, str], path: str
) -> None:
    """The uid of the Job and the key of its log are in these."""
    job, pod = running_job
    kind = pod if "/pods/" in path else job
    said = kubelet.ask("GET", path.replace("NAME", kind).replace("VICTIM", victim))
    assert said.refusal.startswith("403"), said


@pytest.fixture(scope="module")
def running_job(admin: Identity, api: Api, victim: str) -> tuple[str, str]:
    """A Job on the other node, with its Secret, and its pod."""
    name = "running"
    admin.make({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": OURS}})
    job_of(admin, name, victim)
    wait_until(lambda: bool(pods_of(api, name)), "the Job has its pod")
    return name, pods_of(api, name)[0].metadata.name


@pytest.mark.parametrize("is_own", [True, False], ids=["its own", "another's"])
def test_a_kubelet_has_the_pods_of_its_own_node_and_their_secrets(
    admin: Identity, kubelet: Identity, evil: str, victim: str, name: str, *, is_own: bool
) -> None:
    admin.make({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": OURS}})
    mounted = {"name": "s", "secret": {"secretName": name}}
    spec = {"nodeName": evil if is_own else victim, "containers": [{"name": "c", "image": "x"}], "volumes": [mounted]}
    admin.make({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": OURS}, "spec": spec})

    def ask(method: str, path: str) -> bool:
        return kubelet.ask(method, f"/api/v1/namespaces/{OURS}/{path}/{name}").refusal == ""

    if is_own:
        wait_until(lambda: ask("GET", "secrets"), "the Node authorizer knows of the pod")
    assert ask("GET", "secrets") is is_own
    assert ask("DELETE", "pods") is is_own


@pytest.mark.parametrize("whose", ["its own", "another's"])
@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"metadata": {"labels": {RESTRICTED: "mine"}}}, id="another stack"),
        pytest.param({"metadata": {"labels": {RESTRICTED: None}}}, id="no stack"),
        pytest.param({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, id="a role"),
        pytest.param({"spec": {"taints": None}}, id="no taint"),
        pytest.param({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, id="a taint"),
        pytest.param(
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": UID}]}},
            id="an owner",
        ),
    ],
)
@pytest.mark.parametrize("part", ["", "/status"])
def test_what_no_kubelet_writes_is_refused(  # noqa: PLR0917 - fixtures and parameters
    admin: Identity, kubelet: Identity, evil: str, victim: str, whose: str, patch: dict[str, Any], part: str
) -> None:
    """Through the status some of it is taken and comes to nothing: what counts is that the Node stays as it was."""
    node = evil if whose == "its own" else victim

    def kept() -> tuple[object, ...]:
        found = admin.read(f"/api/v1/nodes/{node}")
        metadata = found["metadata"]
        labels = {key: value for key, value in metadata["labels"].items() if "kubernetes.io/" in key}
        taints = [each for each in found["spec"].get("taints", []) if not each["key"].startswith("node.kubernetes.io/")]
        return labels, metadata.get("ownerReferences"), taints

    before = kept()
    said = kubelet.patch_node(node, patch, part)
    assert kept() == before
    assert said.startswith("403") or (part and node == evil), said
