"""MIG devices made for claims on a real Kubernetes: its scheduler chooses the places, by the counters of the GPU."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nodes import mig
from lab.nvml import models
from lab.nvml import state as nvml_state
from tests.e2e.manifests import Manifest, container, pod
from tests.e2e.stage import DAEMON
from tests.e2e.test_claims import DRIVER, devices, prepared, suppress_conflict, versions
from tests.e2e.test_gpushare import KUBECONFIG
from tests.e2e.test_mig import LOOK, gpus, nodes_of, seen
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

CLASS = "mig.nvidia.com"
# As NVIDIA's chart has it (templates/deviceclass-mig.yaml, 0.4.0).
DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": CLASS},
    "spec": {
        "selectors": [
            {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"}}
        ]
    },
}
PLACES = 25  # of all profiles of an A100


@pytest.fixture
def node(stage: Stage, lab_nodes: tuple[LabNode, ...]) -> Iterator[LabNode]:
    """A node whose first GPU is in MIG mode, without any MIG device, in a cluster with NVIDIA's device class."""
    found = lab_nodes[0]
    before = gpus(found)
    found.change_gpus(lambda machine: machine.with_gpu(0, mig_enabled=True, mig_pending=True))
    # What the module lists of instances: those that will be made, as the simulated NVML does not reach into /proc.
    mig.list_capabilities(found.node, models.with_mig(nvml_state.read(found.node.nvml_library), 0, ["1g.5gb"] * 3))
    with suppress_conflict():
        stage.api.resource.create_device_class(DEVICE_CLASS)
    yield found
    stage.api.resource.delete_device_class(CLASS)
    found.change_gpus(lambda machine: replace(machine, gpus=before))
    mig.hide_capabilities(found.node)


@contextmanager
def by_claims(stage: Stage, node: LabNode) -> Iterator[None]:
    keys = {"interface": "dra", "dynamicMig": True, "kubernetesApi": KUBECONFIG, "nodeName": node.name}
    with node.configured(**keys):
        wait_for(
            f"the partitions of a GPU of {node.name} are published",
            lambda: len(devices(stage, node)) == PLACES + len(node.uuids) - 1,
            evidence=lambda: f"{sorted(devices(stage, node))}\n{node.journal(DAEMON, 40)}",
        )
        yield
    stage.wait_for_gpus(node.name, len(node.uuids))


def template(profile: str) -> Manifest:
    """Return what makes a claim of one partition for each pod."""
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].profile == '{profile}'"}}
    wanted = {"name": "gpu", "exactly": {"deviceClassName": CLASS, "selectors": [selector]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": profile},
        "spec": {"spec": {"devices": {"requests": [wanted]}}},
    }


def asks(name: str, node: LabNode, profile: str) -> Manifest:
    """Return a pod with two containers on one partition."""
    made = [{**container(each, LOOK), "resources": {"claims": [{"name": "gpu"}]}} for each in ("main", "second")]
    found = pod(name, *made, node=node.name, runtime_class="")
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": profile}]
    return found


def made_on(node: LabNode) -> dict[str, str]:
    """Return the profiles of the MIG devices that there are, by UUID."""
    return {each.uuid: each.profile for each in gpus(node)[0].migs}


def test_the_scheduler_places_partitions_and_they_live_as_long_as_their_claims(
    room: Room, stage: Stage, node: LabNode
) -> None:
    with by_claims(stage, node):
        room.start(*map(template, ("1g.5gb", "3g.20gb", "4g.20gb")))
        room.start(asks("one", node, "1g.5gb"))
        room.wait_running(["one"])
        room.start(asks("three", node, "3g.20gb"))
        room.wait_running(["three"])
        assert sorted(made_on(node).values()) == ["1g.5gb", "3g.20gb"]
        by_profile = {profile: uuid for uuid, profile in made_on(node).items()}
        assert seen(room, "one") == nodes_of(node, by_profile["1g.5gb"])
        assert seen(room, "three") == nodes_of(node, by_profile["3g.20gb"])
        # A place for 4 slices is at the GPU's beginning alone, where three slices are in use.
        room.start(asks("four", node, "4g.20gb"))
        wait_for("there is no room", lambda: "cannot allocate all claims" in str(room.pod("four").status))
        before, identities = versions(stage, node), room.identities("one")
        node.unit("kill", DAEMON)
        node.unit("restart", DAEMON)
        room.api.delete_pod(room.name, "three")
        room.wait_running(["four"])
        assert sorted(made_on(node).values()) == ["1g.5gb", "4g.20gb"]
        assert room.identities("one") == identities
        assert versions(stage, node) == before  # what is made and what is not makes no difference to the slices
        room.clear()
        wait_for("every claim is given back", lambda: prepared(node) == 0, evidence=room.evidence)
        wait_for("every MIG device is gone", lambda: not made_on(node), evidence=lambda: node.journal(DAEMON, 40))
