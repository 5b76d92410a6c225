"""A GPU that fails and answers again: not offered until a manual verdict; the pod that has it is left alone.

Recovery by evidence takes five quiet minutes for such a GPU: the daemon's own tests have it, with less of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import STAY, container, pod
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

TELLS_HEALTH = 36  # Kubernetes 1.x


def test_a_gpu_that_failed_is_not_offered_until_somebody_vouches_for_it(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node, whole = lab_nodes[0], len(lab_nodes[0].uuids)
    room.start(pod("holder", container(script=STAY, gpus=1), node=node.name))
    room.wait_running(["holder"])
    (sick,) = room.sight("holder").uuids
    identity = room.identities("holder")

    node.change_gpus(lambda machine: machine.with_gpu_lost(node.uuids.index(sick)))
    try:
        stage.wait_for_gpus(node.name, whole - 1)
        assert stage.api.capacity(node.name) == whole
        # One of those that are left counts as the holder's: the scheduler knows numbers only.
        room.start(pod("others", container(script=STAY, gpus=whole - 2), node=node.name))
        room.wait_running(["others"])
        assert sick not in room.sight("others").uuids
        assert room.identities("holder") == identity
        if tells_health(stage, node):
            wait_for("the holder's status tells", lambda: health_of(room, "holder") == {sick: "Unhealthy"})
    finally:
        node.change_gpus(lambda machine: replace(machine, failures=()))

    assert "lost" in node.judge("show")
    node.judge("set", sick, "healthy", "--reason", "it was only unplugged")
    stage.wait_for_gpus(node.name, whole)
    node.judge("clear", sick)
    assert "lost" not in node.judge("show")
    stage.wait_for_gpus(node.name, whole)
    assert room.identities("holder") == identity
    assert node.given_to(room.name, "holder") == {"main": frozenset({sick})}


def tells_health(stage: Stage, node: LabNode) -> bool:
    """Tell whether the kubelet puts the health of devices into pods (ResourceHealthStatus, on by default from 1.36)."""
    version: str = stage.api.node(node.name).status.node_info.kubelet_version
    return int(version.split(".")[1]) >= TELLS_HEALTH


def health_of(room: Room, name: str) -> dict[str, str]:
    """Return the health of a pod's devices as its status shows it."""
    statuses = room.pod(name).status.container_statuses
    return {
        device.resource_id: device.health
        for container_status in statuses
        for resource in container_status.allocated_resources_status or ()
        for device in resource.resources or ()
    }
