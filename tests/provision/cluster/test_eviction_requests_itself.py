"""Asks by EvictionRequests in the form that Kubernetes 1.37 publishes, served by a real API server.

Its types are installed as custom resources; the controller of Kubernetes that acts on them is the test.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster import open_api
from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.nodes.others import SKIP
from provision.cluster.kubernetes.pods.pod_rules import TAINT
from provision.cluster.node_requests import KubernetesRequests
from provision.rollout.interface.cluster import Eviction, EvictionOutcome
from provision.rollout.model import NodeView, Phase
from provision.rollout.requests import abandon
from tests.provision.cluster.foreseen import steps_between
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import GPU_RULES, wait_until

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.rollout.model import GpuPod
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

RULES = replace(GPU_RULES, requests=True)
GROUP, VERSION = "lifecycle.k8s.io", "v1alpha1"
REQUESTS, EVICTIONS = f"evictionrequests.{GROUP}", f"evictions.{GROUP}"
EVICTED = Eviction(outcome=EvictionOutcome.EVICTED)
REQUESTED = Eviction(outcome=EvictionOutcome.BLOCKED, reason="its eviction is requested")
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT, UUID = {"type": "string"}, {"type": "string", "pattern": "^[0-9a-f-]{36}$"}
POD = {"type": "object", "required": ["name", "uid"], "properties": {"name": TEXT, "uid": UUID}}
TARGET = {"type": "object", "required": ["pod"], "properties": {"pod": POD}}
# Validation as in k8s.io/api v0.37.2, lifecycle/v1alpha1/types.go
REQUEST = {
    "type": "object",
    "required": ["target", "requester", "intent"],
    "properties": {
        "target": TARGET,
        "requester": {"type": "string", "pattern": "^[a-z0-9.-]+/[A-Za-z0-9._-]+$"},
        "intent": {"type": "string", "enum": ["Eviction", "Withdrawn"]},
    },
}


def definition(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": ANY}}
    version = {"name": VERSION, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


class Controller:
    """What a test does in the place of Kubernetes' evictionrequest-controller, and of responders."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.stage.get(REQUESTS)["items"]
        return found

    def set_status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        self.stage.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)

    def activate(self, request: dict[str, Any], responder: str, message: str) -> None:
        """Take a request up, and have a responder begin."""
        name, target = request["metadata"]["name"], request["spec"]["target"]
        self.set_status(REQUESTS, name, {"observedGeneration": 1})
        labels = {request["spec"]["requester"]: "requester", responder: "responder"}
        eviction = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Eviction", "spec": {"target": target}}
        self.stage.kubectl("create", "-f", "-", data=eviction | {"metadata": {"name": name, "labels": labels}})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {
            "targetResponders": [
                {"name": responder, "priority": 10000, "state": "Active"},
                {"name": "imperative-eviction.k8s.io/evictor", "priority": 100, "state": "Inactive"},
            ],
            "responders": [
                {"name": responder, "startTime": now, "heartbeatTime": now, "message": message},
                {"name": "imperative-eviction.k8s.io/evictor"},
            ],
        }
        self.set_status(EVICTIONS, name, status)

    def fail(self, request: dict[str, Any]) -> None:
        """Give a request up."""
        condition = {
            "type": "Failed",
            "status": "True",
            "reason": "NoFurtherResponder",
            "message": "",
            "lastTransitionTime": "2026-11-23T09:00:00Z",
        }
        self.set_status(REQUESTS, request["metadata"]["name"], {"observedGeneration": 1, "conditions": [condition]})


@pytest.fixture
def controller(stage: Stage) -> Controller:
    """Have the types served."""
    for kind, spec in (
        ("EvictionRequest", REQUEST),
        ("Eviction", {"type": "object", "properties": {"target": TARGET}}),
    ):
        stage.kubectl("apply", "-f", "-", data=definition(kind, spec))
    stage.kubectl("wait", "--for=condition=Established", f"crd/{REQUESTS}", f"crd/{EVICTIONS}")
    wait_until(lambda: REQUESTS in stage.kubectl("api-resources", "--api-group", GROUP, "-o", "name"), "it is served")
    stage.kubectl("delete", REQUESTS, "--all")
    return Controller(stage)


def pod_of(stage: Stage, cluster: KubernetesCluster) -> GpuPod:
    node = stage.make_node()
    stage.make_pod(node)
    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    return seen.gpu_pods[0]


def is_ending(stage: Stage, pod: GpuPod) -> bool:
    return "deletionTimestamp" in stage.get("pod", pod.name)["metadata"]


def test_a_pod_is_asked_by_a_request_and_who_is_at_it_is_named(stage: Stage, controller: Controller) -> None:
    cluster = stage.connect(rules=RULES)
    pod = pod_of(stage, cluster)

    assert cluster.evict(pod) == REQUESTED

    (request,) = controller.requests()
    assert request["spec"] == {
        "target": {"pod": {"name": pod.name, "uid": pod.uid}},
        "requester": "grapnel.dev/drain",
        "intent": "Eviction",
    }
    assert request["metadata"]["ownerReferences"][0]["uid"] == pod.uid
    controller.activate(request, "example.com/mover", "moves 3 of 8 shards")
    wanted = "its eviction is requested, and example.com/mover is at it: moves 3 of 8 shards"
    following = stage.connect(rules=RULES)  # one that goes on after the first was killed asks for nothing new
    assert following.evict(pod) == Eviction(outcome=EvictionOutcome.BLOCKED, reason=wanted)
    assert len(controller.requests()) == 1
    assert not is_ending(stage, pod)


def test_a_request_is_taken_back_for_a_pod_that_may_stay_also_one_of_a_process_that_was_killed(
    stage: Stage, controller: Controller
) -> None:
    killed = stage.connect(rules=RULES)
    staying, leaving = pod_of(stage, killed), pod_of(stage, killed)
    killed.evict_all([staying, leaving])

    stage.connect(rules=RULES).settle_evictions(lambda uid: uid == leaving.uid)

    assert [each["spec"]["target"]["pod"]["uid"] for each in controller.requests()] == [leaving.uid]


def test_an_abandoned_node_takes_its_requests_with_it_and_they_are_shown_before(
    stage: Stage, controller: Controller
) -> None:
    """Nothing of the Node changes that was not shown, and nothing shown stays undone."""
    cluster = stage.connect(rules=RULES)
    leaving, staying = pod_of(stage, cluster), pod_of(stage, cluster)
    cluster.write(leaving.node, replace(RECORD, phase=Phase.DRAIN, is_tainted=True), cordoned=True)
    cluster.evict_all([leaving, staying])
    api = open_api(stage.control_plane.kubeconfig, None, {})
    assert api is not None
    before, requested = stage.get("node", leaving.node), controller.requests()

    plan = KubernetesRequests(api, [leaving.node], {}).foresee(leaving.node, abandon)
    assert (stage.get("node", leaving.node), controller.requests()) == (before, requested), "who looks changes nothing"
    KubernetesRequests(api, [leaving.node], {}).change(leaving.node, abandon)

    left = controller.requests()
    assert [each["spec"]["target"]["pod"]["uid"] for each in left] == [staying.uid]
    gone = {each["metadata"]["name"] for each in requested} - {each["metadata"]["name"] for each in left}
    assert {(step.action, step.target) for step in plan.steps} == {
        *steps_between(before, stage.get("node", leaving.node)),
        *(("delete", f"EvictionRequest default/{name}") for name in gone),
    }
    assert {("remove", f"taint {TAINT}"), ("remove", f"annotation {UPGRADE}"), ("write", f"label {SKIP}")} <= {
        (step.action, step.target) for step in plan.steps
    }


def test_a_request_ends_with_its_pod(stage: Stage, controller: Controller) -> None:
    cluster = stage.connect(rules=RULES)
    pod = pod_of(stage, cluster)
    cluster.evict(pod)

    stage.kubectl("delete", "pod", pod.name, "--force", "--grace-period=0")

    wait_until(lambda: not controller.requests(), "the garbage collector has taken the request")


def test_a_request_that_is_given_up_is_followed_by_an_eviction(stage: Stage, controller: Controller) -> None:
    asking = stage.connect(rules=RULES)
    pod = pod_of(stage, asking)
    assert asking.evict(pod) == REQUESTED
    (request,) = controller.requests()
    controller.fail(request)

    assert stage.connect(rules=RULES).evict(pod) == EVICTED

    assert controller.requests() == []
    assert is_ending(stage, pod)


def test_without_the_wish_for_requests_there_is_none(stage: Stage, controller: Controller) -> None:
    cluster = stage.connect(rules=GPU_RULES)

    assert cluster.evict(pod_of(stage, cluster)) == EVICTED
    assert controller.requests() == []


def test_a_request_that_is_refused_is_an_eviction(stage: Stage, controller: Controller) -> None:
    cluster = stage.connect(rules=RULES)
    pod = pod_of(stage, cluster)
    policy: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-requests"},
        "spec": {"hard": {f"count/{REQUESTS}": "0"}},
    }
    stage.kubectl("create", "-f", "-", data=policy)
    try:
        wait_until(lambda: "hard" in stage.get("quota", "no-requests").get("status", {}), "the quota is counted")
        assert cluster.evict(pod) == EVICTED
    finally:
        stage.kubectl("delete", "quota", "no-requests")
    assert controller.requests() == []


def test_a_request_of_somebody_else_speaks_for_no_pod(stage: Stage, controller: Controller) -> None:
    """Whoever may request evictions in some namespace kept the pods of others on their nodes, by a label and a uid."""
    cluster = stage.connect(rules=RULES)
    pod = pod_of(stage, cluster)
    stage.kubectl("create", "namespace", "mallory")
    forged: dict[str, Any] = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "EvictionRequest",
        "metadata": {
            "name": f"grapnel-{pod.uid}",
            "namespace": "mallory",
            "labels": {"app.kubernetes.io/managed-by": "grapnel"},
        },
        "spec": {
            "target": {"pod": {"name": pod.name, "uid": pod.uid}},
            "requester": "grapnel.dev/drain",
            "intent": "Eviction",
        },
    }
    stage.kubectl("create", "-f", "-", data=forged)
    named = {**forged, "metadata": {**forged["metadata"], "name": "mallory", "namespace": "default"}}
    stage.kubectl("create", "-f", "-", data=named)

    assert cluster.evict(pod) == REQUESTED

    there = {"default/mallory", f"default/grapnel-{pod.uid}"}
    assert {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in controller.requests()} == there
    cluster.settle_evictions(lambda _uid: False)
    assert [each["metadata"]["name"] for each in controller.requests()] == ["mallory"], "what is not ours stays"
