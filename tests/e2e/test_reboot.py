"""A node that reboots: its GPUs are offered again, and its pods run again with GPUs of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.api import is_ready
from tests.e2e.fleet import look
from tests.e2e.manifests import STAY, container, deployment
from tests.e2e.waiting import for_each, wait_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Collection

    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REPLICAS = 2


def test_pods_of_a_rebooted_node_run_again_with_gpus_of_their_own(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    for node in lab_nodes:
        share = container(script=STAY, gpus=len(node.uuids) // REPLICAS)
        room.start(deployment(f"all-{node.name}", REPLICAS, share, node=node.name))
    before = {node.name: wait_for_replicas(room, node) for node in lab_nodes}

    for_each(lab_nodes, lambda node: node.node.reboot())

    for node in lab_nodes:
        stage.wait_until_booted(node)
        stage.wait_until_settled(node)
        after = wait_for_replicas(room, node, unlike=starts(before[node.name]))
        names = [each.metadata.name for each in after]
        seen = {name: room.sight(name).uuids for name in names}
        assert sorted(uuid for uuids in seen.values() for uuid in uuids) == sorted(node.uuids)
        assert {name: node.given_to(room.name, name)["main"] for name in names} == seen
        assert {each.pod for each in node.allocations()} == set(names)


def test_grapnel_reboots_a_node_that_all_its_pods_have_left(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...], operator: Operator
) -> None:
    """Whatever a pod has: who only shut the node down would find the same pods on it again."""
    node, *others = lab_nodes
    room.start(
        deployment("gpu", REPLICAS, container(script=STAY, gpus=1), node=node.name),
        deployment("plain", REPLICAS, container(script=STAY), node=node.name),
    )
    before, boots = wait_for_pods(room), {each.name: each.boot_id() for each in lab_nodes}

    done = reboot(operator, node)

    assert done.returncode == 0, done.stdout + done.stderr
    state = look(stage, node)
    assert (state.phase, state.is_cordoned) == ("done", False)
    assert state.boot != boots[node.name]
    assert stage.api.node(node.name).status.node_info.boot_id == state.boot, "its kubelet had reported it"
    assert {each.name: each.boot_id() for each in others} == {each.name: boots[each.name] for each in others}
    assert wait_for_pods(room).isdisjoint(before)
    again = reboot(operator, node)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{node.name} is not rebooted: was rebooted at" in again.stdout
    assert node.boot_id() == state.boot


def reboot(operator: Operator, node: LabNode) -> subprocess.CompletedProcess[str]:
    return operator.grapnel("reboot", "--yes", "--kubeconfig", str(operator.kubeconfig), node.name)


def wait_for_pods(room: Room) -> set[str]:
    """Wait until both deployments are complete, and return the names of their pods."""

    def ready() -> set[str] | None:
        found = [each for app in ("gpu", "plain") for each in room.api.pods(room.name, f"app={app}") if is_ready(each)]
        return {each.metadata.name for each in found} if len(found) == 2 * REPLICAS else None

    return wait_for("all pods are ready", ready, timeout_s=120, evidence=room.evidence)


def wait_for_replicas(room: Room, node: LabNode, unlike: Collection[str] = ()) -> list[Any]:
    """Wait until the node's deployment is complete, with other containers than those; return its pods.

    The API shows a pod as it was before the reboot until the kubelet has looked at it. Some pods are refused and
    replaced: a kubelet takes back none that needs devices while their plugin has not registered.
    """

    def ready() -> list[Any] | None:
        pods = room.api.pods(room.name, f"app=all-{node.name}")
        found = [each for each in pods if is_ready(each) and starts([each]).isdisjoint(unlike)]
        return found if len(found) == REPLICAS else None

    return wait_for(f"{REPLICAS} pods of {node.name} are ready", ready, timeout_s=120, evidence=room.evidence)


def starts(pods: list[Any]) -> set[str]:
    """Return the ids of the containers that run: another start has another one."""
    return {status.container_id for each in pods for status in each.status.container_statuses}
