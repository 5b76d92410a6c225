"""GPUs by claims in a real cluster: its scheduler allocates them by our DeviceClasses, and grapnel sees who has any."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.cli import main
from provision.cluster import open_api
from provision.cluster.kubernetes.pods.evictions.device_taints import name_of
from provision.cluster.kubernetes.usage import Usage
from provision.cluster.reader import KubernetesReader
from provision.rollout.interface.cluster import EvictionOutcome
from provision.rollout.model import NodeView
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.words import used_on
from tasks.generated.chart import DEPLOY
from tests.provision.cluster.stage import GPU, GPU_RULES, READY, wait_until
from tests.provision.cluster.test_devices_by_claims import published

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

SAID = {"type": "GPUsHealthy", "status": "True", "message": "4 GPUs can be used", "reason": "Works"}
MIG = "gpu-3-mig-3g40gb-9-4"


@pytest.fixture(scope="module")
def node(stage: Stage) -> str:
    """Return a node that gives three GPUs and a MIG device to claims, and none through a device plugin."""
    stage.kubectl("apply", "-f", str(DEPLOY / "dra" / "deviceclasses.yaml"))
    name = stage.make_node(claims="yes")
    status = {"capacity": {GPU: "0"}, "allocatable": {GPU: "0"}, "conditions": [*READY, SAID]}
    stage.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    devices = published("gpu-0", "gpu-1", "gpu-2", MIG, node=name)
    devices["metadata"] = {"name": f"{name}-gpu"}
    devices["spec"]["devices"][3]["attributes"]["type"]["string"] = "mig"
    stage.kubectl("create", "-f", "-", data=devices)
    return name


def make_pod(stage: Stage, name: str, *, claims: list[str] | None = None, limits: dict[str, str] | None = None) -> None:
    named = [{"name": each, "resourceClaimName": each} for each in claims or ()]
    resources = {"limits": limits or {}, "claims": [{"name": each} for each in claims or ()]}
    spec = {
        "nodeSelector": {"claims": "yes"},
        "containers": [{"name": "main", "image": "x", "resources": resources}],
        "resourceClaims": named,
    }
    stage.kubectl(
        "create", "-f", "-", data={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    )


def make_claim(stage: Stage, name: str, *, count: int = 1, of: str = "gpu.nvidia.com") -> None:
    exactly = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    stage.kubectl("create", "-f", "-", data=claim)


def is_bound(stage: Stage, name: str) -> bool:
    return bool(stage.get("pod", name)["spec"].get("nodeName"))


def explained(stage: Stage, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["explain", *words, "--kubeconfig", str(stage.control_plane.kubeconfig)]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_pods_with_claims_are_given_gpus_are_drained_and_are_explained(
    stage: Stage, node: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # which a runner of tests may set
    for name, count, of in (
        ("pair", 2, "gpu.nvidia.com"),
        ("part", 1, "mig.nvidia.com"),
        ("more", 2, "gpu.nvidia.com"),
    ):
        make_claim(stage, name, count=count, of=of)
    for name in ("pair", "part"):
        make_pod(stage, f"with-{name}", claims=[name])
        wait_until(lambda name=name: is_bound(stage, f"with-{name}"), f"{name} has its devices")
    make_pod(stage, "with-more", claims=["more"])
    wait_until(
        lambda: bool(stage.get("pod", "with-more")["status"].get("conditions")), "the scheduler has looked at it"
    )

    seen = stage.connect().observe([node])[node]
    assert isinstance(seen, NodeView)
    assert [each.name for each in seen.gpu_pods] == ["with-pair", "with-part"]
    assert not seen.remarks
    told = explained(stage, capsys, "pod", "default/with-more")
    assert "asks 2 gpu.nvidia.com, by resource claim more" in told
    assert "claim more has no device yet: it is given some when the scheduler finds a node" in told
    assert f"node {node}: 2 of its 3 gpu.nvidia.com are held by other pods, 1 free" in told
    told = explained(stage, capsys, "pod", "default/with-part")
    assert f"claim part has {MIG} of {node} (gpu.nvidia.com)" in told
    told = explained(stage, capsys, "node", node)
    assert "has 3 gpu.nvidia.com, 3 can be given, 2 held, 1 free" in told
    assert "has 1 mig.nvidia.com, 1 can be given, 1 held, 0 free" in " ".join(told)
    assert "2 gpu.nvidia.com by default/with-pair; 1 mig.nvidia.com by default/with-part" in " ".join(told)


def test_a_pod_that_asks_for_the_resource_is_given_a_gpu_by_a_claim_and_is_drained(stage: Stage, node: str) -> None:
    resource = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    if "extendedResourceName" not in stage.get("deviceclass", "gpu.nvidia.com")["spec"]:
        pytest.skip("this Kubernetes has no extended resources by claims")
    make_pod(stage, "by-class", limits={resource: "1"})
    wait_until(lambda: is_bound(stage, "by-class"), "it has a GPU")

    claim: dict[str, Any] = stage.get("pod", "by-class")["status"]["extendedResourceClaimStatus"]

    assert claim["requestMappings"][0]["resourceName"] == resource
    seen = stage.connect().observe([node])[node]
    assert isinstance(seen, NodeView)
    assert "by-class" in {each.name for each in seen.gpu_pods}
    api = open_api(stage.control_plane.kubeconfig, None, {})
    assert api is not None
    reader = KubernetesReader(api, [node], {}, usage=Usage(api))
    (status,) = fleet_status(reader.look()).nodes
    assert (used_on(status) or {})["gpu.nvidia.com"] == 3


def test_pods_with_claims_are_ended_by_a_taint_on_the_gpus_of_their_node(stage: Stage, node: str) -> None:
    served = json.loads(stage.kubectl("get", "--raw", "/apis/resource.k8s.io/v1"))
    if "devicetaintrules" not in {each["name"] for each in served["resources"]}:
        pytest.skip("this Kubernetes serves no DeviceTaintRules")
    stage.kubectl("delete", "pods,resourceclaims", "--all", "--force")  # what the others have: there are three GPUs
    make_claim(stage, "ended")
    make_pod(stage, "to-be-ended", claims=["ended"])
    wait_until(lambda: is_bound(stage, "to-be-ended"), "it has its GPU")
    cluster = stage.connect(rules=replace(GPU_RULES, taints=True))

    with cluster.lease("test"):
        seen = cluster.observe([node])[node]
        assert isinstance(seen, NodeView)
        pod = next(each for each in seen.gpu_pods if each.name == "to-be-ended")
        assert pod.is_by_claims
        assert cluster.evict(pod).outcome is EvictionOutcome.BLOCKED
        wait_until(
            lambda: "deletionTimestamp" in stage.get("pod", "to-be-ended")["metadata"], "Kubernetes has told it to end"
        )
        assert [each["metadata"]["name"] for each in stage.get("devicetaintrules")["items"]] == [name_of(node)]
        cluster.write(node, None, cordoned=False)

    assert stage.get("devicetaintrules")["items"] == []
