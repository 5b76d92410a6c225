"""Which pods have a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from provision.cluster.pods import gpu_pods, has_gpu
from provision.rollout.model import GpuPod
from tests.provision.cluster.samples import container, pod

GPU = {"nvidia.com/gpu": "1"}
OWNER = {"apiVersion": "apps/v1", "uid": "u", "blockOwnerDeletion": True}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"containers": [container(limits=GPU)]}, True, id="a limit"),
        pytest.param({"containers": [container(requests=GPU)]}, True, id="a request"),
        pytest.param({"containers": [container(), container(limits=GPU)]}, True, id="the second container"),
        pytest.param({"initContainers": [container(limits=GPU)]}, True, id="an init container"),
        pytest.param(
            {"initContainers": [container(limits=GPU) | {"restartPolicy": "Always"}]}, True, id="a native sidecar"
        ),
        pytest.param({"containers": [container(limits={"nvidia.com/mig-1g.5gb": "1"})]}, True, id="a part of a GPU"),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu.shared": "3"})]}, True, id="a shared GPU"),
        pytest.param({"containers": [container(limits={"example.com/gpu": "1"})]}, True, id="the declared resource"),
        pytest.param({"containers": [container(limits={"example.org/gpu": "1"})]}, False, id="somebody else's"),
        pytest.param({"containers": [container(limits={"cpu": "1", "memory": "1Gi"})]}, False, id="cpu and memory"),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu": "0"})]}, False, id="none of it"),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu": "0e3"})]}, False, id="none, written oddly"),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu": "1k"})]}, True, id="a thousand"),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu": "10"})]}, True, id="ten"),
        pytest.param({"runtimeClassName": "nvidia"}, False, id="only the RuntimeClass"),
    ],
)
def test_a_pod_has_a_gpu_with(spec: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a column of the table
    assert has_gpu(pod(spec=spec), {"example.com/gpu"}) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"status": {"phase": "Pending"}}, True, id="bound, not started"),
        pytest.param({"status": {"phase": "Unknown"}}, True, id="its kubelet is silent"),
        pytest.param({"status": {"phase": "Succeeded"}}, False, id="done"),
        pytest.param({"status": {"phase": "Failed"}}, False, id="failed"),
        pytest.param({"spec": {"nodeName": "", "containers": [container(limits=GPU)]}}, False, id="not bound yet"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-11-21T09:30:00Z"}}, True, id="about to leave"),
    ],
)
def test_a_pod_counts_for_its_node_when(changes: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - see above
    one = pod(**({"spec": {"containers": [container(limits=GPU)]}} | changes))

    assert bool(gpu_pods([one], ())) is expected


def only(**metadata: Any) -> GpuPod:  # noqa: ANN401 - parts of an object of the API
    one = pod(metadata=metadata, spec={"containers": [container(limits=GPU)]})
    return gpu_pods([one], ())["n1"][0]


def test_a_pod_is_named_with_its_controller() -> None:
    found = only(ownerReferences=[OWNER | {"kind": "ReplicaSet", "name": "web-5d8f", "controller": True}])

    assert found == GpuPod(
        namespace="default",
        name="web",
        uid="uid-web",
        is_terminating=False,
        is_mirror_or_daemon=False,
        controller="ReplicaSet/web-5d8f",
    )


def test_an_owner_that_is_not_the_controller_does_not_bring_the_pod_back() -> None:
    assert only(ownerReferences=[OWNER | {"kind": "ConfigMap", "name": "x"}]).controller == ""


def test_a_pod_of_a_daemon_set_comes_back_wherever_it_is_evicted() -> None:
    assert only(ownerReferences=[OWNER | {"kind": "DaemonSet", "name": "d", "controller": True}]).is_mirror_or_daemon


def test_the_mirror_of_a_static_pod_is_not_the_pod() -> None:
    assert only(annotations={"kubernetes.io/config.mirror": "3f"}).is_mirror_or_daemon


def test_a_pod_that_is_being_deleted_is_leaving() -> None:
    assert only(deletionTimestamp="2026-11-21T09:30:00Z").is_terminating


def test_pods_are_sorted_within_their_nodes() -> None:
    spec = {"containers": [container(limits=GPU)]}
    pods = [pod("b", spec=spec), pod("a", spec=spec), pod("c", spec=spec | {"nodeName": "n2"})]

    found = gpu_pods(pods, ())

    assert {node: [each.name for each in these] for node, these in found.items()} == {"n1": ["a", "b"], "n2": ["c"]}
