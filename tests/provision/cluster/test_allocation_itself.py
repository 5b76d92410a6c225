"""What a real scheduler and API server make of our classes and slices: extended resources, quotas, admins.

Behaviours of Kubernetes' own suite (test/e2e/dra) that the product relies on, without a kubelet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.machine.errors import CommandError
from tasks.generated.chart import DEPLOY
from tests.provision.cluster.stage import GPU, wait_until
from tests.provision.cluster.test_claims_itself import is_bound, is_decided
from tests.provision.cluster.test_devices_by_claims import published

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

OF_GPUS = "gpu.nvidia.com"
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}


@pytest.fixture(autouse=True)
def _classes(stage: Stage) -> None:
    stage.kubectl("apply", "-f", str(DEPLOY / "dra" / "deviceclasses.yaml"))


def needs_extended(stage: Stage) -> None:
    if "extendedResourceName" not in stage.get("deviceclass", OF_GPUS)["spec"]:
        pytest.skip("this Kubernetes has DRAExtendedResource off: pods that ask for a resource are given no claim")


def publish(stage: Stage, node: str, *devices: str) -> None:
    """Have a node give devices by claims, and none through a device plugin."""
    status = {"capacity": {GPU: "0"}, "allocatable": {GPU: "0"}}
    stage.set_node_status(node, status)
    made = published(*devices, node=node)
    made["metadata"] = {"name": f"{node}-gpu"}
    stage.kubectl("create", "-f", "-", data=made)


def make_claim(stage: Stage, name: str, request: dict[str, Any], namespace: str = "default") -> None:
    spec = {"devices": {"requests": [{"name": "gpu", **request}]}}
    stage.kubectl("-n", namespace, "create", "-f", "-", data=CLAIM | {"metadata": {"name": name}, "spec": spec})


def make_pod(stage: Stage, name: str, on: str, *, claim: str = "", limits: dict[str, str] | None = None) -> None:
    """Make a pod for nodes with a label, which asks for resources or has a claim."""
    container: dict[str, Any] = {"name": "main", "image": "x", "resources": {"limits": limits or {}}}
    spec: dict[str, Any] = {"nodeSelector": {"pool": on}, "containers": [container]}
    if claim:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    stage.kubectl("create", "-f", "-", data=pod)


def refused(stage: Stage, *words: str, data: object) -> str:
    """Return why something cannot be made."""
    with pytest.raises(CommandError) as error:
        stage.kubectl(*words, "create", "-f", "-", data=data)
    return str(error.value.hint)


def test_pods_of_today_run_on_nodes_of_either_interface(stage: Stage) -> None:
    needs_extended(stage)
    by_plugin, by_claims = stage.make_node(pool="mixed"), stage.make_node(pool="mixed")
    publish(stage, by_claims, "gpu-0", "gpu-1")
    for number in range(6):
        make_pod(stage, f"mixed-{number}", "mixed", limits={GPU: "1"})
    for number in range(6):
        wait_until(lambda number=number: is_bound(stage, f"mixed-{number}"), f"mixed-{number} has a node")

    pods = [stage.get("pod", f"mixed-{number}") for number in range(6)]
    by_node = {node: [each for each in pods if each["spec"]["nodeName"] == node] for node in (by_plugin, by_claims)}
    assert [len(each) for each in by_node.values()] == [4, 2]
    assert not any("extendedResourceClaimStatus" in each["status"] for each in by_node[by_plugin])
    assert all("extendedResourceClaimStatus" in each["status"] for each in by_node[by_claims])


def test_a_pod_that_waits_is_given_a_gpu_when_its_node_has_changed_over(stage: Stage) -> None:
    needs_extended(stage)
    node = stage.make_node(pool="changes")
    stage.make_pod(node, gpus="4")
    make_pod(stage, "waits-for-dra", "changes", limits={GPU: "1"})
    wait_until(lambda: is_decided(stage, "waits-for-dra"), "the scheduler has looked at it")
    assert not is_bound(stage, "waits-for-dra")

    publish(stage, node, "gpu-0")

    wait_until(lambda: is_bound(stage, "waits-for-dra"), "it has a GPU by a claim")
    assert "extendedResourceClaimStatus" in stage.get("pod", "waits-for-dra")["status"]


def test_a_class_that_comes_late_serves_pods_that_wait_for_it(stage: Stage) -> None:
    needs_extended(stage)
    publish(stage, stage.make_node(pool="late"), "gpu-0")
    make_pod(stage, "early", "late", limits={"example.com/late": "1"})
    wait_until(lambda: is_decided(stage, "early"), "the scheduler has looked at it")
    assert not is_bound(stage, "early")

    expression = f"device.driver == '{OF_GPUS}'"
    spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": "example.com/late"}
    stage.kubectl("create", "-f", "-", data=CLASS | {"metadata": {"name": "late"}, "spec": spec})

    wait_until(lambda: is_bound(stage, "early"), "it has its GPU")
    stage.kubectl("delete", "deviceclass", "late")


def has_quota(stage: Stage, namespace: str, hard: str) -> None:
    """Make a namespace with a quota that is counted already."""
    stage.kubectl("create", "namespace", namespace)
    stage.kubectl("-n", namespace, "create", "quota", "gpus", f"--hard={hard}")
    wait_until(lambda: "hard" in stage.get("-n", namespace, "quota", "gpus").get("status", {}), "the quota is counted")


def test_a_quota_of_the_class_holds_claims(stage: Stage) -> None:
    has_quota(stage, "by-class", f"{OF_GPUS}.deviceclass.resource.k8s.io/devices=2")
    make_claim(stage, "first", {"exactly": {"deviceClassName": OF_GPUS, "count": 2}}, "by-class")
    one = {"exactly": {"deviceClassName": OF_GPUS}}
    spec = {"devices": {"requests": [{"name": "gpu", **one}]}}

    why = refused(stage, "-n", "by-class", data=CLAIM | {"metadata": {"name": "second"}, "spec": spec})

    assert "exceeded quota: gpus" in why
    stage.kubectl("-n", "by-class", "delete", "resourceclaim", "first")
    wait_until(
        lambda: set(stage.get("-n", "by-class", "quota", "gpus")["status"]["used"].values()) == {"0"},
        "what was given back is free",
    )
    make_claim(stage, "second", one, "by-class")


def test_a_quota_of_the_resource_holds_claims_of_the_class_that_stands_for_it(stage: Stage) -> None:
    needs_extended(stage)
    has_quota(stage, "by-resource", f"requests.{GPU}=1")
    two = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": OF_GPUS, "count": 2}}]}}
    data = CLAIM | {"metadata": {"name": "two"}, "spec": two}

    assert "exceeded quota: gpus" in refused(stage, "-n", "by-resource", data=data)
    make_claim(stage, "mig", {"exactly": {"deviceClassName": "mig.nvidia.com", "count": 2}}, "by-resource")


def test_the_first_alternative_that_there_is_is_given(stage: Stage) -> None:
    publish(stage, stage.make_node(pool="alternatives"), "gpu-0")
    mig = {"name": "part", "deviceClassName": "mig.nvidia.com"}
    make_claim(stage, "either", {"firstAvailable": [mig, {"name": "whole", "deviceClassName": OF_GPUS}]})
    make_pod(stage, "either", "alternatives", claim="either")
    wait_until(lambda: is_bound(stage, "either"), "it has a device")

    (result,) = stage.get("resourceclaim", "either")["status"]["allocation"]["devices"]["results"]
    assert (result["request"], result["device"]) == ("gpu/whole", "gpu-0")


def test_whoever_watches_all_gpus_takes_none_and_needs_the_namespaces_label(stage: Stage) -> None:
    publish(stage, stage.make_node(pool="watched"), "gpu-0")
    watching = {"exactly": {"deviceClassName": OF_GPUS, "allocationMode": "All", "adminAccess": True}}
    spec = {"devices": {"requests": [{"name": "gpu", **watching}]}}
    assert "admin" in refused(stage, data=CLAIM | {"metadata": {"name": "watching"}, "spec": spec}).lower()
    stage.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true")
    make_claim(stage, "watching", watching)
    make_claim(stage, "working", {"exactly": {"deviceClassName": OF_GPUS}})
    for name in ("watching", "working"):
        make_pod(stage, name, "watched", claim=name)
        wait_until(lambda name=name: is_bound(stage, name), f"{name} has its devices")
    stage.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access-")
