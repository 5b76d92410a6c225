"""GPUs by claims in a real cluster: its scheduler allocates them by our DeviceClasses, and grapnel sees who has any."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lab.golang.programs import kubernetes_version
from lab.machine.errors import CommandError
from provision.cli import main
from provision.cluster import open_api
from provision.cluster.kubernetes.nodes.selectors import NotThereError, Seen, parse
from provision.cluster.kubernetes.objects.claims import DescribedSlice, ResourceClaim
from provision.cluster.kubernetes.pods.evictions.device_taints import name_of
from provision.cluster.kubernetes.usage import Usage
from provision.cluster.reader import KubernetesReader
from provision.rollout.interface.cluster import EvictionOutcome
from provision.rollout.model import NodeView
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.words import used_on
from tasks.generated.chart import DEPLOY
from tests.provision.cluster.stage import GPU, GPU_RULES, READY, path_of, wait_until
from tests.provision.cluster.test_devices_by_claims import published

if TYPE_CHECKING:
    from pathlib import Path

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
    stage.set_node_status(name, status)
    devices = published("gpu-0", "gpu-1", "gpu-2", MIG, node=name)
    devices["metadata"] = {"name": f"{name}-gpu"}
    devices["spec"]["devices"][3]["attributes"]["type"]["string"] = "mig"
    stage.kubectl("create", "-f", "-", data=devices)
    return name


def make_pod(
    stage: Stage, name: str, *, claims: list[str] | None = None, limits: dict[str, str] | None = None, on: str = "yes"
) -> None:
    named = [{"name": each, "resourceClaimName": each} for each in claims or ()]
    resources = {"limits": limits or {}, "claims": [{"name": each} for each in claims or ()]}
    spec = {
        "nodeSelector": {"claims": on},
        "containers": [{"name": "main", "image": "x", "resources": resources}],
        "resourceClaims": named,
    }
    stage.kubectl(
        "create", "-f", "-", data={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    )


def make_claim(
    stage: Stage, name: str, *, count: int = 1, of: str = "gpu.nvidia.com", where: str = "", **more: object
) -> None:
    exactly = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count, **more}
    if where:
        exactly["selectors"] = [{"cel": {"expression": where}}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    stage.kubectl("create", "-f", "-", data=claim)


def is_decided(stage: Stage, name: str) -> bool:
    """Whether the scheduler has given a pod a node, or has said why not."""
    return bool(stage.get("pod", name)["status"].get("conditions"))


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


GPU_OF = "device.attributes['gpu.nvidia.com']"
MEMORY = "device.capacity['gpu.nvidia.com'].memory"
# Whether a device with these attributes is given is the scheduler's to say; ours has to say the same.
EXPRESSIONS = (
    f"{GPU_OF}.type == 'gpu' && {GPU_OF}.index == 3",
    f"{GPU_OF}.index > 3",
    f"{GPU_OF}.index in [1, 2] || {GPU_OF}.productName.startsWith('NVIDIA')",
    f"{GPU_OF}.productName.contains('Z') || !({GPU_OF}.type != 'mig')",
    f"{GPU_OF}.missing == 'x'",
    f"{GPU_OF}.missing == 'x' || {GPU_OF}.type == 'gpu'",
    f"{GPU_OF}.missing == 'x' && {GPU_OF}.type == 'mig'",
    "has(device.attributes['nowhere'].type)",
    f"'type' in {GPU_OF} && !('type' in device.attributes['nowhere'])",
    f"{MEMORY}.compareTo(quantity('80Gi')) >= 0",
    f"{MEMORY}.isGreaterThan(quantity('80Gi'))",
    f"{GPU_OF}.driverVersion.compareTo(semver('550.54.0')) > 0",
    f"{GPU_OF}.driverVersion.isLessThan(semver('550.163.1'))",
    f"{GPU_OF}.candidate.isLessThan(semver('1.0.0')) && {GPU_OF}.candidate.isGreaterThan(semver('1.0.0-rc.1'))",
    "!device.allowMultipleAllocations && device.driver == 'gpu.nvidia.com'",
)


@pytest.mark.usefixtures("node")
def test_expressions_come_to_what_they_come_to_for_the_scheduler(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    name = stage.make_node(claims="judged")
    many = published(*(f"gpu-{number}" for number in range(len(EXPRESSIONS))), node=name)
    many["metadata"] = {"name": f"{name}-gpu"}
    for each in many["spec"]["devices"]:
        each["attributes"] |= {
            "index": {"int": 3},
            "productName": {"string": "NVIDIA H100"},
            "driverVersion": {"version": "550.163.1"},
            "candidate": {"version": "1.0.0-rc.2"},
        }
    stage.kubectl("create", "-f", "-", data=many)
    expressions = EXPRESSIONS
    if kubernetes_version().startswith(("1.34.", "1.35.")):  # DRAConsumableCapacity is off there
        expressions = tuple(each for each in EXPRESSIONS if "allowMultipleAllocations" not in each)
        with pytest.raises(CommandError) as refused:
            make_claim(stage, "refused", where="device.allowMultipleAllocations")
        assert "undefined field 'allowMultipleAllocations'" in str(refused.value.hint)
    pods = {f"judged-{number}": each for number, each in enumerate(expressions)}
    for pod, expression in pods.items():
        make_claim(stage, pod, where=expression)
        make_pod(stage, pod, claims=[pod], on="judged")
    for pod in pods:
        wait_until(lambda pod=pod: is_decided(stage, pod), f"the scheduler has looked at {pod}")

    given = {each for pod, each in pods.items() if is_bound(stage, pod)}
    devices = msgspec.convert(many, DescribedSlice).spec.devices
    seen = Seen.of(devices[0], "gpu.nvidia.com")
    judged = set()
    for each in expressions:
        with suppress(NotThereError):
            judged |= {each} if parse(each).holds(seen) else set()
    assert judged == given
    assert 0 < len(given) < len(expressions)
    told = " ".join(explained(stage, capsys, "claim", "default/judged-1"))
    assert f"wants `{EXPRESSIONS[1]}`, and index is 3" in told
    told = " ".join(explained(stage, capsys, "claim", "default/judged-4"))
    assert "it has no missing: the scheduler gives up there" in told
    assert "CEL runtime error" in stage.get("pod", "judged-4")["status"]["conditions"][0]["message"]


@pytest.mark.usefixtures("node")
def test_a_claim_is_told_with_its_device_and_its_pod_and_what_is_in_the_way_of_another(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    name = stage.make_node(claims="one")
    one = published("gpu-0", node=name)
    one["metadata"] = {"name": f"{name}-gpu"}
    stage.kubectl("create", "-f", "-", data=one)
    here = (
        "device.attributes['gpu.nvidia.com'].uuid == 'GPU-gpu-0' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    )
    for each in ("first", "second"):
        make_claim(stage, each, where=here)
    make_claim(stage, "unused")
    make_claim(stage, "channel", of="compute-domain-default-channel.nvidia.com")
    make_pod(stage, "has", claims=["first"], on="one")
    wait_until(lambda: is_bound(stage, "has"), "it has its device")
    make_pod(stage, "waits", claims=["second"], on="one")
    wait_until(lambda: is_decided(stage, "waits"), "the scheduler has looked at it")

    told = explained(stage, capsys, "claim", "default/first")
    assert told[0] == "default/first: has its devices"
    assert f"has request r: gpu-0 of {name} (gpu.nvidia.com)" in told
    assert f"pod has does not run yet on {name}" in told
    told = explained(stage, capsys, "claim", "default/second")
    assert told[0] == "default/second: waits for devices"
    assert any(line.startswith("pod waits waits for a node: 0/") for line in told)
    assert "held by default/first" in " ".join(told)
    assert explained(stage, capsys, "claim", "default/unused")[0].endswith(
        "has no device, and no pod that waits for it"
    )
    told = explained(stage, capsys, "claim", "default/channel")
    assert any(line.startswith("not served compute-domain-default-channel.nvidia.com") for line in told)
    assert main(["explain", "claim", "default/secondd", "--kubeconfig", str(stage.control_plane.kubeconfig)]) == 1
    assert "did you mean default/second?" in capsys.readouterr().err


@pytest.mark.usefixtures("node")
def test_a_node_hides_what_another_one_has_by_the_name_of_its_pool_unless_the_policy_is_there(
    stage: Stage, tmp_path: Path
) -> None:
    victim, thief = stage.make_node(claims="hidden"), stage.make_node()
    has = published("gpu-0", "gpu-1", node=victim)
    has["metadata"] = {"name": f"{victim}-gpu"}
    stage.kubectl("create", "-f", "-", data=has)
    counters = published(node=thief, generation=9)
    counters["metadata"] = {"name": f"{thief}-counters"}
    counters["spec"]["pool"]["name"] = victim
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [{"name": "c", "counters": {"n": {"value": "1"}}}]
    certificates = stage.control_plane.certificates
    identity = tmp_path / "kubelet.conf"
    identity.write_text(stage.control_plane.render_kubeconfig(certificates.prepare_node(thief)))
    identity.chmod(0o600)
    stage.kubectl("create", "-f", "-", "--kubeconfig", str(identity), data=counters)
    if "sharedCounters" not in stage.get("resourceslice", f"{thief}-counters")["spec"]:
        pytest.skip("this Kubernetes has DRAPartitionableDevices off: nothing of a pool is looked at on other nodes")
    for name in ("hidden", "seen"):
        make_claim(stage, name)
    make_pod(stage, "hidden", claims=["hidden"], on="hidden")
    wait_until(lambda: is_decided(stage, "hidden"), "the scheduler has looked at it")
    assert is_bound(stage, "hidden") is not kubernetes_version().startswith(
        "1.36."
    )  # 1.37 looks at its own slices first
    stage.kubectl("delete", "resourceslice", f"{thief}-counters")
    make_pod(stage, "seen", claims=["seen"], on="hidden")  # no pod is tried again for a slice that went
    wait_until(lambda: is_bound(stage, "seen"), "it has its GPU")

    stage.kubectl("apply", "-f", str(DEPLOY / "dra" / "slicepolicy.yaml"))

    def refusal() -> str:
        try:
            stage.kubectl("create", "--dry-run=server", "-f", "-", "--kubeconfig", str(identity), data=counters)
        except CommandError as error:
            return str(error.hint)
        return ""

    wait_until(lambda: "may name a pool after that node alone" in refusal(), "the policy is in force")


def test_pods_with_claims_are_ended_by_a_taint_on_the_gpus_of_their_node(stage: Stage, node: str) -> None:
    served = json.loads(stage.kubectl("get", "--raw", "/apis/resource.k8s.io/v1"))
    if "devicetaintrules" not in {each["name"] for each in served["resources"]}:
        pytest.skip("this Kubernetes serves no DeviceTaintRules")
    stage.kubectl("delete", "pods,resourceclaims", "--all", "--force")  # what the others have: there are three GPUs
    make_claim(stage, "ended")
    make_pod(stage, "to-be-ended", claims=["ended"])
    tolerates = {"key": "grapnel.dev/upgrade", "operator": "Exists", "effect": "NoExecute"}
    make_claim(stage, "tolerant", tolerations=[tolerates])
    make_pod(stage, "stays-otherwise", claims=["tolerant"])
    for name in ("to-be-ended", "stays-otherwise"):
        wait_until(lambda name=name: is_bound(stage, name), "it has its GPU")
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
        tolerant = next(each for each in seen.gpu_pods if each.name == "stays-otherwise")
        assert (tolerant.is_by_claims, tolerant.tolerates_s) == (False, inf)
        assert "deletionTimestamp" not in stage.get("pod", "stays-otherwise")["metadata"]
        assert cluster.evict(tolerant).outcome is EvictionOutcome.EVICTED
        cluster.write(node, None, cordoned=False)

    assert stage.get("devicetaintrules")["items"] == []


@pytest.mark.usefixtures("node")
def test_what_an_author_writes_for_a_driver_hides_no_claims(stage: Stage) -> None:
    """The API server takes it as it is, and passes it on: nested too deeply for a parser, half a character."""
    for name, value in {"deep": "[" * 2000 + "]" * 2000, "half": '"\\ud800"'}.items():
        opaque = {"driver": "gpu.nvidia.com", "parameters": {"kind": "VALUE"}}
        request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"written-{name}"},
            "spec": {"devices": {"requests": [request], "config": [{"opaque": opaque}]}},
        }
        post_as_it_is(stage, path_of("resourceclaim"), json.dumps(claim).replace('"VALUE"', value))
    api = open_api(stage.control_plane.kubeconfig, None, {})
    assert api is not None
    listed = {each.metadata.name for each in api.list_all("/apis/resource.k8s.io/v1/resourceclaims", ResourceClaim)}
    assert {"written-deep", "written-half"} <= listed
    for name in ("deep", "half"):
        stage.control_plane.api.delete(path_of("resourceclaim", f"written-{name}"))


def post_as_it_is(stage: Stage, path: str, text: str) -> None:
    connection = stage.control_plane.api.connection()
    connection.request("POST", path, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()
