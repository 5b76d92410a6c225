"""Memory units placed by the stage's kube-scheduler with the extender: cards as the kubelets give them, never twice."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from lab import podresources
from lab.cluster import Cluster
from tests.e2e.conftest import NAME
from tests.e2e.extender import extended_scheduler
from tests.e2e.manifests import container, deployment
from tests.e2e.parts import MEMORY, asks, settings, wait_offered
from tests.e2e.stage import DAEMON, KUBELET
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.e2e.extender import Extender
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

KUBECONFIG = "/etc/kubernetes/kubelet.kubeconfig"
ANNOTATION = "grapnel.dev/memory-units"
UNIT_MIB, OF_CARD = 8192, 5
INDEX, ASSIGNED, OF_POD = (f"ALIYUN_COM_GPU_MEM_{name}" for name in ("IDX", "ASSIGNED", "POD"))
STAY = "env; echo looked; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"


@pytest.fixture(scope="module")
def extender(lab_nodes: tuple[LabNode, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    assert lab_nodes
    with extended_scheduler(Cluster(NAME).control_plane, tmp_path_factory.mktemp("gpushare")) as made:
        yield made


def in_units(stack: ExitStack, stage: Stage, node: LabNode, *cards: int) -> None:
    """Offer cards of a node in units until the stack is closed; the Node says nothing of them afterwards."""
    units = [{"devices": [node.uuids[card] for card in cards], "unitMiB": UNIT_MIB}]

    def is_forgotten() -> bool:
        return ANNOTATION not in stage.api.node(node.name).metadata.annotations

    stack.enter_context(settings(node, kubernetesApi=KUBECONFIG, nodeName=node.name))
    stack.callback(wait_for, f"{node.name} says nothing of units any more", is_forgotten)
    stack.enter_context(settings(node, memoryUnits=units))
    wait_offered(stage, node, memory=OF_CARD * len(cards))


def held(nodes: Iterable[LabNode], namespace: str) -> dict[str, tuple[str, int, int]]:
    """Return which card a pod has units of, and how many, as the kubelets say: node, index, units."""
    found = {}
    for node in nodes:
        for each in podresources.allocated(node.node.root, MEMORY):
            if each.namespace == namespace and each.devices:
                (uuid,) = {unit.partition("/")[0] for unit in each.devices}
                found[each.pod] = (node.name, node.uuids.index(uuid), len(each.devices))
    return found


def annotated(stage: Stage, namespace: str) -> dict[str, tuple[str, int, int]]:
    """Return the same of the pods that are said to have their units, by their annotations."""
    found = {}
    for pod in stage.api.pods(namespace):
        told = pod.metadata.annotations or {}
        if told.get(ASSIGNED) == "true":
            found[pod.metadata.name] = (pod.spec.node_name, int(told[INDEX]), int(told[OF_POD]))
    return found


def why_waiting(pod: Any) -> str:
    """Return what the scheduler says of a pod that it has not placed, "" where it says nothing."""
    scheduled = (each for each in pod.status.conditions or () if each.type == "PodScheduled")
    return next((str(each.message or "") for each in scheduled), "")


def wait_told(room: Room, nodes: Iterable[LabNode], extender: Extender, count: int) -> dict[str, tuple[str, int, int]]:
    """Wait until so many pods have units and their annotations say of each what its kubelet says."""

    def as_told() -> dict[str, tuple[str, int, int]]:
        given = held(nodes, room.name)
        return given if len(given) == count and annotated(room.stage, room.name) == given else {}

    return wait_for(
        f"annotations say where {count} pods are",
        as_told,
        evidence=lambda: f"{held(nodes, room.name)}\n{annotated(room.stage, room.name)}\n{extender.said()}",
    )


def test_pods_are_placed_on_cards_and_annotated_with_those_that_they_were_given(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...], extender: Extender
) -> None:
    nodes = lab_nodes[:2]
    with ExitStack() as stack:
        in_units(stack, stage, nodes[0], 1, 2)
        in_units(stack, stage, nodes[1], 3)
        names = [f"equal-{number}" for number in range(6)]
        room.start(*(asks(name, None, MEMORY, 2, script=STAY) for name in names))
        room.wait_running(names)
        given = wait_told(room, nodes, extender, len(names))
        cards = sorted((node, card) for node, card, _ in given.values())
        assert cards == sorted(2 * [(nodes[0].name, 1), (nodes[0].name, 2), (nodes[1].name, 3)])
        for name, (_, card, _) in given.items():
            assert f"{INDEX}={card}" in room.whole_log(name).splitlines()
        room.start(asks("one-too-many", None, MEMORY, 2))  # a unit is left of each card
        told = wait_for("it is told why it waits", lambda: why_waiting(room.pod("one-too-many")))
        assert "no card has 2 free units" in told, told
        assert "12/15 (80%)" in extender.inspect()
        room.clear()
    for node in nodes:
        wait_offered(stage, node, memory=0, whole=len(node.uuids))


def test_nothing_is_given_twice_when_extender_and_daemon_are_killed_after_a_bind(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...], extender: Extender
) -> None:
    """Whoever comes while the daemon is away is refused by the kubelet, and the deployment makes another one."""
    node = lab_nodes[0]
    one = container("main", STAY)
    one["resources"] = {"limits": {MEMORY: "3"}}
    with ExitStack() as stack:
        in_units(stack, stage, node, 1, 2)
        cards = [(node.name, 1, 3), (node.name, 2, 3)]
        node.node.run(["systemctl", "kill", "--signal", "STOP", KUBELET])
        try:
            room.start(deployment("three", 3, one, node=node.name))
            wait_for(
                "two of them are bound",
                lambda: bound(room) == len(cards),
                evidence=lambda: state(room, node, extender),
            )
            extender.kill()
            node.node.run(["systemctl", "kill", "--signal", "KILL", DAEMON])
            extender.start()
            told = extender.why_not(asks("late", node, MEMORY, 3), node.name)
            assert "no card has 3 free units" in told, told
            assert bound(room) == len(cards)
        finally:
            node.node.run(["systemctl", "kill", "--signal", "CONT", KUBELET])
        given = wait_told(room, [node], extender, len(cards))
        assert sorted(given.values()) == cards
        assert "6/10 (60%)" in extender.inspect()
        stage.api.delete_pod(room.name, next(iter(given)))
        wait_for("another one has its card", lambda: held([node], room.name).keys() - given.keys())
        assert sorted(wait_told(room, [node], extender, len(cards)).values()) == cards
        room.clear()
    wait_offered(stage, node, memory=0, whole=len(node.uuids))


def state(room: Room, node: LabNode, extender: Extender) -> str:
    """Return what is known of pods that wait, and of a node's units."""
    waiting = [f"{pod.metadata.name} waits: {why_waiting(pod)}" for pod in room.api.pods(room.name)]
    found = room.api.node(node.name)
    offered = f"allocatable {found.status.allocatable.get(MEMORY)}, {found.metadata.annotations.get(ANNOTATION)}"
    return "\n".join([*waiting, offered, extender.said()])


def bound(room: Room) -> int:
    return sum(1 for pod in room.api.pods(room.name) if pod.spec.node_name)
