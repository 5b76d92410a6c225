"""GPUs of running nodes come and go, and containers that are started again in a pod keep theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import RESOURCE, STAY, container, pod
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from lab.nvml.machine import Machine
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

SUBSTITUTE = 4  # major number of device nodes in the lab, whose first minor is 16


def test_a_restartable_init_container_has_a_gpu_of_its_own_and_keeps_it(
    room: Room, lab_nodes: tuple[LabNode, ...]
) -> None:
    """The kubelet gives what an ordinary init container had to the others; this one still runs."""
    node = lab_nodes[0]
    side = {**container("side", STAY, gpus=1), "restartPolicy": "Always"}
    room.start(pod("both", container(script=STAY, gpus=1), init=[side], node=node.name))
    room.wait_running(["both"])
    before = room.sight("both", "side").uuids
    given = node.given_to(room.name, "both")
    assert given == {"side": before, "main": room.sight("both").uuids}
    assert not given["side"] & given["main"]
    main = room.identities("both")["main"]

    room.api.run_in(room.name, "both", "side", ["kill", "1"])
    wait_for("it was started again", lambda: has_restarted(room, "both"), evidence=room.evidence)
    assert room.sight("both", "side").uuids == before
    assert node.given_to(room.name, "both") == given
    assert room.identities("both")["main"] == main


def has_restarted(room: Room, name: str) -> bool:
    (status,) = room.pod(name).status.init_container_statuses
    return bool(status.restart_count and status.state.running)


def test_a_gpu_that_is_added_is_offered_and_one_that_is_taken_away_is_not(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node = lab_nodes[1]
    number = len(node.uuids)
    last = node.node.gpus[-1]
    added = replace(last, uuid=f"{last.uuid[:-4]}add1", minor_number=number, pci_address="0000:50:00.0")
    path = f"/dev/nvidia{number}"

    def with_added(machine: Machine) -> Machine:
        return replace(machine, gpus=(*machine.gpus, added))

    node.change_gpus(with_added)
    node.node.run(["mknod", "-m", "666", path, "c", str(SUBSTITUTE), str(16 + number)])
    try:
        stage.wait_for_gpus(node.name, number + 1)
        room.start(pod("all", container(script=STAY, gpus=number + 1), node=node.name))
        room.wait_running(["all"])
        assert room.sight("all").uuids == {*node.uuids, added.uuid}
        node.change_gpus(lambda machine: replace(machine, gpus=machine.gpus[:number]))
        node.node.run(["rm", path])
        stage.wait_for_gpus(node.name, number)
        assert stage.api.capacity(node.name) == number + 1
        assert RESOURCE in room.pod("all").spec.containers[0].resources.limits
        room.api.delete_pod(room.name, "all")
    finally:
        node.change_gpus(lambda machine: replace(machine, gpus=machine.gpus[:number]))
        node.node.run(["rm", "-f", path])
    node.unit("restart", "grapnel-node")  # which forgets a GPU that has gone for good
    stage.wait_until_settled(node)
    wait_for("it is out of capacity, too", lambda: stage.api.capacity(node.name) == number, evidence=room.evidence)
