"""A fleet changes over to claims node by node, its driver is changed under claims, and goes back, each by `grapnel`."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.api import is_ready
from tests.e2e.fleet import declare, look
from tests.e2e.manifests import STAY, Manifest, container, deployment, pod
from tests.e2e.operator import ONE_AT_A_TIME
from tests.e2e.stage import DAEMON
from tests.e2e.test_claims import CLASS, DRIVER, TEMPLATE, devices, prepared, suppress_conflict, template
from tests.e2e.test_controller_upgrade import NEXT_BRANCH
from tests.e2e.test_gpushare import KUBECONFIG
from tests.e2e.test_upgrade import DRIVER_VERSION
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]

REPLICAS = 3
NAMED = f"etc/systemd/system/{DAEMON}.service.d/node-name.conf"


@pytest.fixture
def fleet(stage: Stage, lab_nodes: tuple[LabNode, ...], operator: Operator) -> Iterator[tuple[LabNode, ...]]:
    """The nodes whose engines have CDI, in a cluster with NVIDIA's device class; afterwards as others have them."""
    able = tuple(each.lab for each in stage.nodes if each.lab is not None and has_cdi(each.engine))
    assert len(able) > 1
    with suppress_conflict():
        stage.api.resource.create_device_class(CLASS)
    for node in able:  # whose kubelets have names of their own
        drop_in = node.node.root / NAMED
        drop_in.parent.mkdir(exist_ok=True)
        drop_in.write_text(f"[Service]\nEnvironment=NODE_NAME={node.name}\n")
        restart_daemon(stage, node)
    yield able
    for node in able:
        (node.node.root / NAMED).unlink()
    declare(stage, lab_nodes, lab_nodes[0].module_version())
    done = operator.apply()
    assert done.returncode == 0, done.stdout
    for node in able:
        restart_daemon(stage, node)
    stage.api.resource.delete_device_class(DRIVER)


def has_cdi(engine: str) -> bool:
    """Tell whether an engine takes CDI devices from a kubelet, by its name and version as the kubelet tells them."""
    name, _, version = engine.partition("://")
    return name == "cri-o" or tuple(map(int, version.split(".")[:2])) >= (1, 7)


def restart_daemon(stage: Stage, node: LabNode) -> None:
    node.unit("daemon-reload")
    node.unit("restart", DAEMON)
    stage.wait_until_settled(node)


def declare_interface(stage: Stage, nodes: tuple[LabNode, ...], version: str, interface: str) -> None:
    plugin = json.dumps({"interface": interface, "kubernetesApi": KUBECONFIG})
    declare(stage, nodes, version, f"{ONE_AT_A_TIME}maxFailures: 0\n")
    assert stage.operator is not None
    path = stage.operator.folder / "grapnel.yaml"
    path.write_text(f"{path.read_text()}  plugin: {plugin}\n")


def with_claims(name: str, replicas: int) -> Manifest:
    """Return a deployment each of whose pods has a GPU by a claim of its own."""
    made = deployment(name, replicas, {**container(script=STAY), "resources": {"claims": [{"name": "gpu"}]}})
    spec = made["spec"]["template"]["spec"]
    spec.pop("runtimeClassName", None)
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    return made


def wait_for_replicas(room: Room, without: str = "") -> list[Any]:
    """Wait until all replicas run, none of them on a node; return their pods."""

    def ready() -> list[Any] | None:
        found = [
            each for each in room.api.pods(room.name) if is_ready(each) and each.metadata.deletion_timestamp is None
        ]
        return found if len(found) == REPLICAS and all(each.spec.node_name != without for each in found) else None

    return wait_for("the deployment is complete", ready, evidence=room.evidence)


def record(stage: Stage, node: LabNode) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(look(stage, node).record)
    return found


def driver_versions(stage: Stage, node: LabNode) -> set[str]:
    """Return the driver versions that the slices of a node have."""
    key = "driverVersion"
    return {str(each.attributes[key].version) for each in devices(stage, node).values()}


def semantic(version: str) -> str:
    return ".".join(str(int(part)) for part in version.split("."))


def roll_back(operator: Operator, node: LabNode) -> None:
    done = operator.grapnel("rollback", "--yes", "--kubeconfig", str(operator.kubeconfig), node.name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fleet_changes_over_and_back_and_its_driver_is_changed_under_claims(
    room: Room, stage: Stage, fleet: tuple[LabNode, ...], operator: Operator
) -> None:
    first, *others = fleet
    version, other = first.module_version(), NEXT_BRANCH
    room.start(pod("old", container(script=STAY, gpus=1), node=first.name))
    room.wait_running(["old"])
    identity = room.identities("old")

    # To claims, each node in its turn, under the pod.
    declare_interface(stage, fleet, version, "dra")
    names = [node.name for node in fleet]
    planned = operator.tell("plan", *names)
    assert f"withheld until they end are the GPUs of {room.name}/old" in " ".join(planned.split())
    done = operator.apply(*names)
    assert done.returncode == 0, done.stdout
    for node in fleet:
        seen = record(stage, node)
        assert (seen["phase"], seen["kind"], seen["interface"]) == ("done", "interface", "dra")
        assert not look(stage, node).is_cordoned
        assert len(devices(stage, node)) == len(node.uuids) - (node is first)
        stage.wait_for_gpus(node.name, 0)  # its kubelet knows by then, and tells every ten seconds
    began = sorted((record(stage, node)["began"], record(stage, node)["since"]) for node in fleet)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(began)), began
    assert room.identities("old") == identity
    room.api.delete_pod(room.name, "old")

    # Another driver on a node with claims: its pods go elsewhere, and come back for the next node.
    room.start(template(), with_claims("web", REPLICAS))
    wait_for_replicas(room)
    declare_interface(stage, fleet, other, "dra")
    done = operator.apply(first.name)
    assert done.returncode == 0, done.stdout
    assert (first.module_version(), look(stage, first).is_cordoned) == (other, False)
    wait_for(
        "the slices have the new driver's version",
        lambda: driver_versions(stage, first) == {semantic(other)},
        evidence=room.evidence,
    )
    assert prepared(first) == sum(each.spec.node_name == first.name for each in wait_for_replicas(room))
    room.start(pod_with_claim("new", first))
    room.wait_running(["new"])
    assert room.api.run_in(room.name, "new", "main", DRIVER_VERSION).split() == [other]

    # And the driver before, by the way back, which drains the pod that was just started.
    first.node.install_module(version)
    roll_back(operator, first)
    assert (first.module_version(), look(stage, first).is_cordoned) == (version, False)
    wait_for("the former driver is in the slices", lambda: driver_versions(stage, first) == {semantic(version)})
    room.clear()
    wait_for("every claim is given back", lambda: sum(map(prepared, fleet)) == 0, evidence=room.evidence)

    # Back to the device plugin.
    declare_interface(stage, fleet, version, "devicePlugin")
    done = operator.apply(*names)
    assert done.returncode == 0, done.stdout
    for node in (first, *others):
        assert record(stage, node)["interface"] == "devicePlugin"
        assert not devices(stage, node)
        stage.wait_for_gpus(node.name, len(node.uuids))


def pod_with_claim(name: str, node: LabNode) -> Manifest:
    made = pod(name, {**container(script=STAY), "resources": {"claims": [{"name": "gpu"}]}}, node=node.name)
    made["spec"].pop("runtimeClassName", None)
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    return made
