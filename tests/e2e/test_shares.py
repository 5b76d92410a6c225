"""Parts of GPUs on a real Kubernetes: shares and memory units beside whole GPUs, changed while pods run."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.manifests import STAY, Manifest, container, pod
from tests.e2e.stage import DAEMON
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

SHARED, MEMORY = "nvidia.com/gpu.shared", "aliyun.com/gpu-mem"
REPLICAS, UNIT_MIB = 3, 8192


def sharing(replicas: int) -> dict[str, Any]:
    shares = {"renameByDefault": True, "resources": [{"name": "gpu", "devices": ["0"], "replicas": replicas}]}
    return {"version": "v1", "sharing": {"timeSlicing": shares}}


def asks(name: str, node: LabNode, resource: str, count: int = 1) -> Manifest:
    one = container("main", STAY)
    one["resources"] = {"limits": {resource: str(count)}}
    return pod(name, one, node=node.name)


@contextmanager
def settings(node: LabNode, file: Mapping[str, Any], **keys: object) -> Iterator[None]:
    """Have a node's daemon run with NVIDIA's file and further keys of node.json; as before afterwards."""
    nvidia, own = (node.node.root / f"etc/grapnel/{name}" for name in ("nvidia.yaml", "node.json"))
    before = own.read_text()
    own.write_text(json.dumps({**json.loads(before), **keys}))
    nvidia.write_text(json.dumps(file))
    node.unit("reload", DAEMON)
    try:
        yield
    finally:
        nvidia.unlink()
        own.write_text(before)
        node.unit("reload", DAEMON)


def wait_offered(stage: Stage, node: LabNode, **counts: int) -> None:
    names = {"shared": SHARED, "memory": MEMORY, "whole": "nvidia.com/gpu"}

    def is_offered() -> bool:
        found = stage.api.node(node.name).status.allocatable
        return all(int(found.get(names[kind], 0)) == count for kind, count in counts.items())

    wait_for(f"{node.name} offers {counts}", is_offered)


def test_whole_shared_and_memory_pods_run_side_by_side(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node = lab_nodes[0]
    first, second, *others = node.uuids
    units = [{"devices": [second], "unitMiB": UNIT_MIB}]
    of_card = next(gpu.memory_total for gpu in node.node.gpus if gpu.uuid == second) // 2**20 // UNIT_MIB
    with settings(node, sharing(REPLICAS), memoryUnits=units):
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
    with settings(node, sharing(REPLICAS)):
        wait_offered(stage, node, shared=0, whole=whole - 1)
        assert room.pod("whole").status.phase == "Running"
        room.clear()
        wait_offered(stage, node, shared=REPLICAS)
        room.start(asks("share", node, SHARED))
        room.wait_running(["share"])
        assert room.sight("share").uuids == frozenset({node.uuids[0]})
        room.clear()
    wait_offered(stage, node, shared=0, whole=whole)
