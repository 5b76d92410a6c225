"""`grapnel-node explain` and `devices` on a node of a real cluster: which pod has which GPU, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.manifests import STAY, container, pod
from tests.e2e.stage import DAEMON
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e


def test_a_pod_and_its_gpus_are_explained(room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]) -> None:
    node = lab_nodes[-1]
    stage.wait_until_settled(node)
    room.start(pod("one", container(script=STAY, gpus=1), node=node.name))
    room.wait_running(["one"])
    (uuid,) = room.sight("one").uuids

    found = wait_for("the pod is listed", lambda: explanation(node, f"{room.name}/one"), evidence=room.evidence)
    assert found["devices"] == [uuid]
    assert (found["preference"]["chosen"], found["followed"]) == ([uuid], True)
    candidates = [each["devices"] for each in found["preference"]["candidates"]]
    assert [uuid] in candidates
    # What another test's pod was given a moment ago is put aside where others are free.
    assert {device for devices in candidates for device in devices} <= set(node.uuids)
    listed = next(line for line in node.grapnel_node("devices").splitlines() if uuid[:12] in line)
    assert "one" in listed

    node.unit("restart", DAEMON)
    stage.wait_until_settled(node)
    again = wait_for("it is remembered", lambda: explanation(node, f"{room.name}/one"), evidence=room.evidence)
    assert again["preference"] == found["preference"]

    room.clear()
    wait_for("its end is seen", lambda: explanation(node, uuid)["pods"][0]["gone"], evidence=room.evidence)


def explanation(node: LabNode, about: str) -> dict[str, Any]:
    """Return the last allocation of a pod or GPU, once it is known whose it is; else nothing."""
    found = json.loads(node.grapnel_node("explain", about, "--json"))["allocations"]
    return found[0] if found and found[0]["pods"] else {}
