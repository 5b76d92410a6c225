"""GPUs by dynamic resource allocation on a real Kubernetes: claims, and a node that changes over under running pods."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client.exceptions import ApiException

from provision.cli import main
from tests.e2e.manifests import STAY, Manifest, container, pod
from tests.e2e.parts import settings, sharing
from tests.e2e.stage import DAEMON, ENGINE, KUBELET
from tests.e2e.test_gpushare import KUBECONFIG
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

DRIVER, EXTENDED = "gpu.nvidia.com", "nvidia.com/gpu"
TEMPLATE = "single-gpu"
# As NVIDIA's chart has it (templates/deviceclass-gpu.yaml, 0.4.0).
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [
            {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"}}
        ],
        "extendedResourceName": EXTENDED,
    },
}


@pytest.fixture
def node(stage: Stage, lab_nodes: tuple[LabNode, ...]) -> Iterator[LabNode]:
    """A node whose engine has CDI, in a cluster with NVIDIA's device class."""
    with suppress_conflict():
        stage.api.resource.create_device_class(CLASS)
    yield lab_nodes[0]
    stage.api.resource.delete_device_class(DRIVER)


@contextmanager
def suppress_conflict() -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        if error.status != HTTPStatus.CONFLICT:
            raise


@contextmanager
def by_claims(stage: Stage, node: LabNode, free: int | None = None) -> Iterator[None]:
    """Have a node give its GPUs by claims for a while; `free` is how many are offered at once."""
    with node.configured(interface="dra", kubernetesApi=KUBECONFIG, nodeName=node.name):
        wait_for_devices(stage, node, len(node.uuids) if free is None else free)
        yield
    stage.wait_for_gpus(node.name, len(node.uuids))


def devices(stage: Stage, node: LabNode) -> dict[str, Any]:
    found = stage.api.resource.list_resource_slice(field_selector=f"spec.nodeName={node.name}").items
    return {each.name: each for one in found for each in one.spec.devices or ()}


def versions(stage: Stage, node: LabNode) -> list[str]:
    found = stage.api.resource.list_resource_slice(field_selector=f"spec.nodeName={node.name}").items
    return [each.metadata.resource_version for each in found]


def wait_for_devices(stage: Stage, node: LabNode, count: int) -> None:
    wait_for(
        f"{node.name} has {count} devices for claims",
        lambda: len(devices(stage, node)) == count and stage.api.allocatable(node.name) == 0,
        evidence=lambda: f"{sorted(devices(stage, node))}\n{node.journal(DAEMON, 40)}",
    )


def template(**request: object) -> Manifest:
    """Return what makes a claim of one GPU for each pod; further keys say which."""
    wanted = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, **request}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"spec": {"devices": {"requests": [wanted]}}},
    }


def claims_one(name: str, node: LabNode, *containers: Manifest) -> Manifest:
    """Return a pod all of whose containers share a GPU of their own claim, and which names no runtime class."""
    made = [{**each, "resources": {"claims": [{"name": "gpu"}]}} for each in containers or (container(script=STAY),)]
    found = pod(name, *made, node=node.name, runtime_class="")
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    return found


def explained(room: Room, capsys: pytest.CaptureFixture[str], name: str) -> str:
    """Return what `grapnel explain claim` says of the claim that was made for a pod, in one line."""
    (made,) = room.pod(name).status.resource_claim_statuses
    words = ["explain", "claim", f"{room.name}/{made.resource_claim_name}", "--kubeconfig", str(room.api.kubeconfig)]
    assert main(words) == 0, capsys.readouterr().err
    return " ".join(capsys.readouterr().out.split())


def prepared(node: LabNode) -> int:
    folder = node.node.root / "var/lib/grapnel/node/claims"
    with suppress(OSError):
        return len(list(folder.glob("*.json")))
    return 0


def test_each_claim_gets_its_gpu_and_nobody_else(
    room: Room, stage: Stage, node: LabNode, capsys: pytest.CaptureFixture[str]
) -> None:
    with by_claims(stage, node):
        room.start(template())
        both = claims_one("both", node, container("one", STAY), container("two", STAY))
        room.start(claims_one("first", node), claims_one("second", node), both)
        # An author of pods may write annotations: what names devices to the engine is the kubelet's alone.
        named = {"cdi.k8s.io/grapnel_gpus": ",".join(f"grapnel.dev/gpu={uuid}" for uuid in node.uuids)}
        room.start(pod("none", container(script=STAY), node=node.name, runtime_class="", annotations=named))
        room.wait_running(["first", "second", "both", "none"])
        sights = [room.sight("first"), room.sight("second"), room.sight("both", "one")]
        assert [len(each.uuids) for each in sights] == [1, 1, 1]
        assert len(frozenset().union(*(each.uuids for each in sights))) == 3
        assert all(len(each.gpu_nodes) == 1 for each in sights)
        assert room.sight("both", "two").uuids == room.sight("both", "one").uuids
        assert room.sight("none").is_blind
        (uuid,) = sights[0].uuids
        told = explained(room, capsys, "first")
        assert f"request gpu: {uuid.lower()} of {node.name}" in told
        assert f"first runs on {node.name}: the claim is prepared there" in told
        wait_for(
            "the node's history knows the claim's pod",
            lambda: "container main" in node.grapnel_node("explain", f"{room.name}/first"),
            evidence=lambda: node.grapnel_node("explain"),
        )
        assert prepared(node) == 3
        room.clear()
        wait_for("every claim is given back", lambda: prepared(node) == 0, evidence=room.evidence)


def test_a_pod_of_today_is_given_what_no_claim_has(room: Room, stage: Stage, node: LabNode) -> None:
    if stage.api.resource.read_device_class(DRIVER).spec.extended_resource_name is None:
        pytest.skip("this Kubernetes has DRAExtendedResource off: pods that ask for a resource are given no claim")
    with by_claims(stage, node):
        room.start(template())
        room.start(claims_one("first", node))
        room.wait_running(["first"])
        rest = len(node.uuids) - 1
        room.start(pod("extended", container(script=STAY, gpus=rest), node=node.name))
        room.wait_running(["extended"])
        assert room.sight("extended").uuids == frozenset(node.uuids) - room.sight("first").uuids
        room.clear()
        wait_for("every claim is given back", lambda: prepared(node) == 0, evidence=room.evidence)


def test_daemon_kubelet_and_engine_are_restarted_under_claims(room: Room, stage: Stage, node: LabNode) -> None:
    with by_claims(stage, node):
        room.start(template())
        room.start(claims_one("first", node))
        room.wait_running(["first"])
        before, identity = versions(stage, node), room.identities("first")
        taken = node.claim_registrations()
        node.unit("kill", DAEMON)
        node.unit("restart", DAEMON)
        wait_for("the kubelet has taken the daemon", lambda: node.claim_registrations() > taken)
        room.start(claims_one("second", node))
        room.wait_running(["second"])
        assert versions(stage, node) == before  # nothing was written anew
        taken = node.claim_registrations()
        node.unit("restart", KUBELET)
        wait_for("the next kubelet has taken the daemon", lambda: node.claim_registrations() > taken)
        wait_for("the slices are there again", lambda: len(devices(stage, node)) == len(node.uuids))
        node.unit("restart", ENGINE)
        wait_for("the engine is back", lambda: node.state(ENGINE) == "active")
        room.start(claims_one("third", node))
        room.wait_running(["third"])
        assert room.identities("first") == identity
        assert len(room.sight("third").uuids | room.sight("second").uuids | room.sight("first").uuids) == 3
        room.clear()
        wait_for("every claim is given back", lambda: prepared(node) == 0, evidence=room.evidence)


def test_a_node_changes_over_under_running_pods_and_back(room: Room, stage: Stage, node: LabNode) -> None:
    room.start(pod("old", container(script=STAY, gpus=1), node=node.name))
    room.wait_running(["old"])
    old = room.sight("old").uuids
    identity = room.identities("old")
    with by_claims(stage, node, free=len(node.uuids) - 1):
        taken, published = node.claim_registrations(), versions(stage, node)
        node.unit("restart", KUBELET)  # it deletes slices, and lists no pods for a while
        wait_for("the next kubelet has taken the daemon", lambda: node.claim_registrations() > taken)
        wait_for("the slices are there again", lambda: versions(stage, node) not in ([], published))
        published = versions(stage, node)
        assert len(devices(stage, node)) == len(node.uuids) - 1
        room.start(template())
        names = [f"new-{number}" for number in range(len(node.uuids) - 1)]
        room.start(*(claims_one(name, node) for name in names))
        room.wait_running(names)
        new = frozenset().union(*(room.sight(name).uuids for name in names))
        assert new == frozenset(node.uuids) - old
        assert room.identities("old") == identity
        assert versions(stage, node) == published, "what a pod has by the device plugin was withheld all the time"
        room.api.delete_pod(room.name, "old")
        wait_for_devices(stage, node, len(node.uuids))  # the last one is offered by claims as well
        room.start(claims_one("last", node))
        room.wait_running(["last"])
        assert room.sight("last").uuids == old
        for name in names:
            room.api.delete_pod(room.name, name)
        wait_for("their claims are given back", lambda: prepared(node) == 1, evidence=room.evidence)
        last = room.identities("last")
        with node.configured(interface="devicePlugin"):
            stage.wait_for_gpus(node.name, len(node.uuids) - 1)
            room.start(pod("plain", container(script=STAY, gpus=len(node.uuids) - 1), node=node.name))
            room.wait_running(["plain"])
            assert room.sight("plain").uuids == new
            assert room.identities("last") == last
            room.clear()
            stage.wait_for_gpus(node.name, len(node.uuids))
        wait_for_devices(stage, node, len(node.uuids))


def test_shares_of_one_gpu_are_given_across_pods(
    room: Room, stage: Stage, node: LabNode, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = node.uuids[0]
    with settings(node, sharing("timeSlicing", 3, "0"), interface="dra", kubernetesApi=KUBECONFIG, nodeName=node.name):
        wait_for_devices(stage, node, len(node.uuids))
        if not any(each.allow_multiple_allocations for each in devices(stage, node).values()):
            pytest.skip("this Kubernetes has DRAConsumableCapacity off: a GPU is for one claim alone")
        selector = {"cel": {"expression": "device.allowMultipleAllocations"}}
        room.start(template(selectors=[selector]))
        names = [f"share-{number}" for number in range(3)]
        room.start(*(claims_one(name, node) for name in names))
        room.wait_running(names)
        assert {room.sight(name).uuids for name in names} == {frozenset({shared})}
        room.start(claims_one("one-too-many", node))
        wait_for(
            "there is no fourth share", lambda: "cannot allocate all claims" in str(room.pod("one-too-many").status)
        )
        assert "0 of its 3 shares are left" in explained(room, capsys, "one-too-many")
        room.api.delete_pod(room.name, names[0])
        room.wait_running(["one-too-many"])
        room.clear()
    stage.wait_for_gpus(node.name, len(node.uuids))


def test_a_claim_and_the_device_plugin_give_gpus_of_one_node_also_when_they_are_divided_otherwise(
    room: Room, stage: Stage, node: LabNode
) -> None:
    *others, last = node.uuids
    named = {"kubernetesApi": KUBECONFIG, "nodeName": node.name}
    with node.configured(interface="both", claims=[str(len(others))], **named):
        wait_for_division(stage, node, {last}, len(others))
        room.start(template(), claims_one("claim", node), pod("plugin", container(script=STAY, gpus=1), node=node.name))
        room.wait_running(["claim", "plugin"])
        assert room.sight("claim").uuids == {last}
        (given,) = room.sight("plugin").uuids
        assert given in others
        with node.configured(claims=[str(node.uuids.index(given))]):  # the other way round for these two
            wait_for_division(stage, node, set(), len(others) - 1)
            assert "0 GPUs are offered by dra; 1 wait for pods" in node.grapnel_node("offered")
            room.start(claims_one("late", node))
            # The scheduler still counts the pod's GPU among those that the device plugin gives.
            room.start(pod("rest", container(script=STAY, gpus=len(others) - 2), node=node.name))
            room.wait_running(["rest"])
            assert room.sight("rest").uuids < set(others) - {given}
            wait_for("nobody has a GPU for the claim", lambda: "cannot allocate" in str(room.pod("late").status))
            before = room.identities("claim"), room.identities("rest")
            room.api.delete_pod(room.name, "plugin")
            room.wait_running(["late"])
            assert room.sight("late").uuids == {given}
            assert (room.identities("claim"), room.identities("rest")) == before
            room.api.delete_pod(room.name, "claim")
            wait_for_division(stage, node, {given}, len(others))
            room.clear()
    stage.wait_for_gpus(node.name, len(node.uuids))


def wait_for_division(stage: Stage, node: LabNode, for_claims: set[str], by_numbers: int) -> None:
    """Wait until just these GPUs are published for claims, and the kubelet may give so many by the device plugin."""

    def published() -> set[str]:
        return {str(each.attributes["uuid"].string) for each in devices(stage, node).values()}

    wait_for(
        f"{node.name} has {len(for_claims)} GPUs for claims and {by_numbers} others",
        lambda: published() == for_claims and stage.api.allocatable(node.name) == by_numbers,
        evidence=lambda: f"{published()}\n{node.journal(DAEMON, 40)}",
    )
