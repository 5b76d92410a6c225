"""Which pods have a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provision.cluster.kubernetes.objects.pods import PodResourceClaim
from provision.cluster.kubernetes.pods.gpu_pods import Claims, Given, has_gpu_of, unknown
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from provision.declaration.spec.model import DaemonSets
from provision.rollout.model import GpuPod
from tests.provision.cluster.samples import container, pod, pods_of_nodes

RULES = PodRules(resources=frozenset({"example.com/gpu"}))
GPU = {"nvidia.com/gpu": "1"}
OWNER = {"apiVersion": "apps/v1", "uid": "u", "blockOwnerDeletion": True}


def told(claims: dict[tuple[str, str], frozenset[str]]) -> Claims:
    """Know these claims, and that no other is allocated."""
    return lambda namespace, name: Given(claims.get((namespace, name), frozenset()))


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
        pytest.param({"runtimeClassName": "nvidia"}, False, id="only the RuntimeClass, which gives nothing"),
        pytest.param({"runtimeClassName": "env"}, True, id="only a RuntimeClass that gives GPUs"),
        pytest.param({"resourceClaims": [{"name": "a", "resourceClaimName": "gpu"}]}, True, id="a claim for a GPU"),
        pytest.param({"resourceClaims": [{"name": "a", "resourceClaimName": "nic"}]}, False, id="a claim for a NIC"),
        pytest.param({"resourceClaims": [{"name": "a", "resourceClaimName": "no"}]}, False, id="a claim not yet made"),
    ],
)
def test_a_pod_has_a_gpu_with(spec: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a column of the table
    rules = replace(RULES, giving_classes=frozenset({"env"}))
    claims = {("default", "gpu"): frozenset({"gpu.nvidia.com"}), ("default", "nic"): frozenset({"nic.example.com"})}
    assert has_gpu_of(pod(spec=spec), rules, told(claims)) is expected


@pytest.mark.parametrize(
    ("more", "state", "expected"),
    [
        pytest.param({}, {"terminated": {"exitCode": 0}}, False, id="has ended"),
        pytest.param({}, {"terminated": {"exitCode": 1}}, True, id="has failed and is started again"),
        pytest.param({}, {"running": {}}, True, id="runs"),
        pytest.param({"restartPolicy": "Always"}, {"terminated": {"exitCode": 0}}, True, id="is a sidecar"),
    ],
)
def test_an_init_container_keeps_a_gpu_unless_it(more: dict[str, Any], state: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - see above
    init = container(limits=GPU) | {"name": "set-up"} | more
    status = {"phase": "Running", "initContainerStatuses": [{"name": "set-up", "state": state}]}

    assert has_gpu_of(pod(spec={"initContainers": [init]}, status=status), RULES, unknown) is expected


def test_a_claim_that_was_made_for_a_pod_is_found_by_the_pods_status() -> None:
    spec = {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]}
    status = {"phase": "Running", "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "web-a-x1"}]}
    claims = {("default", "web-a-x1"): frozenset({"gpu.nvidia.com"})}

    assert has_gpu_of(pod(spec=spec, status=status), RULES, told(claims))
    assert not has_gpu_of(pod(spec=spec, status=status), RULES, told({}))


def by_the_scheduler(resource: str) -> dict[str, Any]:
    """Return the status of a pod for whose extended resource, which no device plugin has, there is a claim."""
    mapping = {"containerName": "main", "resourceName": resource, "requestName": "container-0-request-0"}
    claim = {"resourceClaimName": "train-extended-resources-x7k9p", "requestMappings": [mapping]}
    return {"phase": "Running", "extendedResourceClaimStatus": claim}


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("gpu.nvidia.com", True),
        ("devices.grapnel.dev", False),
        ("fpga.example.org", False),
        ("nvidia.com.example.org", False),
    ],
)
def test_a_claim_that_the_scheduler_made_for_an_extended_resource_counts_by_its_driver(
    driver: str,
    expected: bool,  # noqa: FBT001 - see above
) -> None:
    resource = "deviceclass.resource.kubernetes.io/large"
    one = pod(spec={"containers": [container(limits={resource: "1"})]}, status=by_the_scheduler(resource))
    claims = {("default", "train-extended-resources-x7k9p"): frozenset({driver})}

    assert has_gpu_of(one, RULES, told(claims)) is expected


def test_a_claim_is_held_after_the_init_container_that_asked_for_it_has_ended() -> None:
    init = container(limits=GPU) | {"name": "set-up"}
    ended = [{"name": "set-up", "state": {"terminated": {"exitCode": 0}}}]
    status = by_the_scheduler("nvidia.com/gpu") | {"initContainerStatuses": ended}
    claims = {("default", "train-extended-resources-x7k9p"): frozenset({"gpu.nvidia.com"})}

    assert has_gpu_of(pod(spec={"initContainers": [init]}, status=status), RULES, told(claims))


def test_where_claims_may_not_be_read_every_claim_counts_and_that_is_told() -> None:
    nic = {"resourceClaims": [{"name": "a", "resourceClaimName": "nic"}]}
    one, gpu = pod("web", spec=nic), pod("train", spec=nic | {"containers": [container(limits=GPU)]})

    assert one.spec.resource_claims == (PodResourceClaim(name="a", resource_claim_name="nic"),)
    found = pods_of_nodes([one, gpu, pod("cpu")], RULES)["n1"]
    assert [each.name for each in found.gpu] == ["train", "web"]
    assert found.remarks == ("claims cannot be read here, so pods that have any count as pods with GPUs: default/web",)
    assert pods_of_nodes([gpu], RULES)["n1"].remarks == ()
    known = told({("default", "nic"): frozenset({"gpu.nvidia.com"})})
    assert pods_of_nodes([one], RULES, known)["n1"].remarks == ()


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

    assert bool(pods_of_nodes([one], RULES)) is expected


def test_before_a_reboot_all_pods_have_to_leave() -> None:
    everyone = replace(RULES, takes_all=True)
    daemon = {"ownerReferences": [OWNER | {"kind": "DaemonSet", "name": "cni", "controller": True}]}
    pods = [pod("web"), pod("cni", metadata=daemon), pod("done", status={"phase": "Succeeded"})]

    found = pods_of_nodes(pods, everyone)["n1"].gpu

    assert pods_of_nodes(pods, RULES) == {}
    assert [(each.name, each.is_mirror_or_daemon) for each in found] == [("cni", True), ("web", False)]


JOB_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "grapnel-1", "controller": True, "uid": "u"}
DAEMON_OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "grapnel-node", "controller": True, "uid": "u"}
RUN: dict[str, Any] = {"labels": {"grapnel.dev/node-job": "n1"}, "ownerReferences": [JOB_OWNER]}
THE_DAEMON: dict[str, Any] = {"labels": {"grapnel.dev/node-daemon": "pod"}, "ownerReferences": [DAEMON_OWNER]}
HERE = "grapnel-system"


def left_out(metadata: dict[str, Any], namespace: str = HERE, **spec: Any) -> bool:
    rules = replace(RULES, takes_all=True, daemon_sets=DaemonSets.WAIT)
    return pods_of_nodes([pod("own", metadata={"namespace": namespace, **metadata}, spec=spec)], rules) == {}


@pytest.mark.parametrize("metadata", [pytest.param(RUN, id="a run on the node"), pytest.param(THE_DAEMON, id="daemon")])
def test_what_the_node_is_released_by_is_not_in_its_own_way(metadata: dict[str, Any]) -> None:
    assert left_out(metadata)


@pytest.mark.parametrize("metadata", [pytest.param(RUN, id="a run on the node"), pytest.param(THE_DAEMON, id="daemon")])
def test_nobody_hides_a_pod_with_the_labels_of_grapnels_own(metadata: dict[str, Any]) -> None:
    """A pod with eight GPUs was not waited for and not evicted, in whatever namespace its author had put the label."""
    assert not left_out(metadata, "default")
    assert not left_out(metadata, containers=[container(limits={"nvidia.com/gpu": "8"})])
    assert not left_out({**metadata, "ownerReferences": []})
    assert not left_out({**metadata, "annotations": {"kubernetes.io/config.mirror": "3f"}})
    for changed in (
        {"apiVersion": "example.com/v1"},
        {"apiVersion": ""},
        {"kind": "ReplicaSet"},
        {"controller": False},
    ):
        assert not left_out({**metadata, "ownerReferences": [{**metadata["ownerReferences"][0], **changed}]})


def test_pods_of_grapnel_are_where_the_controller_makes_its_jobs() -> None:
    elsewhere = replace(RULES, takes_all=True, namespace="gpus")
    pods = [pod("here", metadata={"namespace": "gpus", **RUN}), pod("there", metadata={"namespace": HERE, **RUN})]
    assert [each.name for each in pods_of_nodes(pods, elsewhere)["n1"].gpu] == ["there"]


def only(rules: PodRules = RULES, spec: dict[str, Any] | None = None, **metadata: Any) -> GpuPod:
    one = pod(metadata=metadata, spec={"containers": [container(limits=GPU)]} | (spec or {}))
    return pods_of_nodes([one], rules)["n1"].gpu[0]


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


@pytest.mark.parametrize("version", ["example.com/v1", "appsx/v1", "v1"])
def test_an_owner_that_only_calls_itself_a_daemon_set_is_none(version: str) -> None:
    """Nothing makes such a pod again, and no garbage collector knows its owner: it was left alone with its GPUs."""
    found = only(
        ownerReferences=[OWNER | {"apiVersion": version, "kind": "DaemonSet", "name": "d", "controller": True}]
    )
    assert not found.is_mirror_or_daemon
    assert not found.is_restarted


def test_a_pod_of_a_daemon_set_comes_back_wherever_it_is_evicted() -> None:
    assert only(ownerReferences=[OWNER | {"kind": "DaemonSet", "name": "d", "controller": True}]).is_mirror_or_daemon


def test_the_mirror_of_a_static_pod_is_not_the_pod() -> None:
    assert only(annotations={"kubernetes.io/config.mirror": "3f"}).is_mirror_or_daemon


def test_a_pod_that_is_being_deleted_is_leaving() -> None:
    assert only(deletionTimestamp="2026-11-21T09:30:00Z").is_terminating


def test_a_pod_that_is_being_deleted_says_until_when_and_what_keeps_it() -> None:
    found = only(deletionTimestamp="2026-11-21T09:30:00Z", finalizers=["example.com/checkpoint"])

    assert found.ending == (
        "terminating, its grace period ends at 2026-11-21T09:30:00Z, then kept by finalizer example.com/checkpoint"
    )


def test_pods_are_sorted_within_their_nodes() -> None:
    spec = {"containers": [container(limits=GPU)]}
    pods = [pod("b", spec=spec), pod("a", spec=spec), pod("c", spec=spec | {"nodeName": "n2"})]

    found = pods_of_nodes(pods, RULES)

    assert {node: [each.name for each in these.gpu] for node, these in found.items()} == {"n1": ["a", "b"], "n2": ["c"]}
