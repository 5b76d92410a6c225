"""Parts of GPUs on a real Kubernetes: shares and memory units beside whole GPUs, changed while pods run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import STAY, container, pod
from tests.e2e.parts import MEMORY, SHARED, asks, settings, sharing, wait_offered
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

REPLICAS, UNIT_MIB = 3, 8192
SHARING = sharing("timeSlicing", REPLICAS, "0")


def test_whole_shared_and_memory_pods_run_side_by_side(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node = lab_nodes[0]
    first, second, *others = node.uuids
    units = [{"devices": [second], "unitMiB": UNIT_MIB}]
    of_card = next(gpu.memory_total for gpu in node.node.gpus if gpu.uuid == second) // 2**20 // UNIT_MIB
    with settings(node, SHARING, memoryUnits=units):
        wait_offered(stage, node, shared=REPLICAS, memory=of_card, whole=len(others))
        names = [f"share-{number}" for number in range(REPLICAS)]
        room.start(*(asks(name, node, SHARED) for name in names))
        room.start(asks("memory-1", node, MEMORY, 2), asks("memory-2", node, MEMORY, 1))
        room.wait_running([*names, "memory-1", "memory-2"])
        assert {room.sight(name).uuids for name in names} == {frozenset({first})}
        assert {room.sight(f"memory-{number}").uuids for number in (1, 2)} == {frozenset({second})}
        room.start(asks("one-too-many", node, SHARED))
        wait_for("there is no fourth share", lambda: "Insufficient" in str(room.pod("one-too-many").status.conditions))
        room.clear()
    wait_offered(stage, node, shared=0, memory=0, whole=len(node.uuids))


def test_a_gpu_that_a_pod_has_is_shared_when_the_pod_has_ended(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node = lab_nodes[0]
    whole = len(node.uuids)
    room.start(pod("whole", container(script=STAY, gpus=whole), node=node.name))
    room.wait_running(["whole"])
    with settings(node, SHARING):
        wait_offered(stage, node, shared=0, whole=whole - 1)
        assert room.pod("whole").status.phase == "Running"
        room.clear()
        wait_offered(stage, node, shared=REPLICAS)
        room.start(asks("share", node, SHARED))
        room.wait_running(["share"])
        assert room.sight("share").uuids == frozenset({node.uuids[0]})
        room.clear()
    wait_offered(stage, node, shared=0, whole=whole)
