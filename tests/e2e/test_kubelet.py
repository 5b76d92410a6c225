"""What happens between the real kubelet and the daemon: whatever breaks, the GPUs are offered again, or all the time.

How long each takes is in docs/device-plugin/kubelet.md. Restarts under running pods are in test_restarts.py.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e.connections import break_connections, count_descriptors
from tests.e2e.manifests import STAY, container, pod
from tests.e2e.stage import DAEMON, KUBELET
from tests.e2e.waiting import holds, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

SOCKET = "grapnel-nvidia.com_gpu"
ROUNDS = 5  # more than the descriptors that a busy kubelet may have beside those before
UNDISTURBED_S = 1.5  # the kubelet's plugin manager looks once a second


@pytest.fixture
def node(lab_nodes: tuple[LabNode, ...], stage: Stage) -> LabNode:
    stage.wait_until_settled(lab_nodes[0])
    return lab_nodes[0]


@pytest.fixture
def folder(node: LabNode) -> Path:
    return node.node.root / "var/lib/kubelet/device-plugins"


@pytest.fixture
def registry(node: LabNode) -> Path:
    return node.node.root / "var/lib/kubelet/plugins_registry"


def wait_until_known(stage: Stage, node: LabNode, more_than: int) -> None:
    """Wait until the kubelet has taken another registration and knows every GPU."""

    def is_known() -> bool:
        return node.knows_its_devices(len(node.uuids))

    wait_for(
        f"{node.name} is registered again",
        lambda: is_known() and node.registrations() > more_than and is_known(),  # a journal is not read for nothing
        evidence=lambda: stage.evidence(node.name),
    )


def assert_gives_gpus(room: Room, node: LabNode, name: str) -> None:
    """A new pod gets as many GPUs as the node has, and ends."""
    room.start(pod(name, container(gpus=len(node.uuids)), node=node.name))
    ended = room.ended(name)
    assert ended.phase == "Succeeded", room.evidence()
    assert ended.sight().uuids == frozenset(node.uuids)
    room.api.delete_pod(room.name, name)
    wait_for(f"{name} is gone", lambda: not room.api.pods(room.name), evidence=room.evidence)


def break_stream(node: LabNode) -> None:
    """Break the connection; on a busy node the kubelet may just be exchanging it once more."""
    daemon = node.pid(DAEMON)
    wait_for("there is a connection to break", lambda: break_connections(daemon, SOCKET))


def test_a_stream_that_ends_alone_is_opened_again_and_leaves_nothing_behind(stage: Stage, node: LabNode) -> None:
    def break_often(times: int) -> None:
        for _ in range(times):
            before = node.registrations()
            break_stream(node)
            wait_until_known(stage, node, before)

    break_often(2)
    daemon, kubelet = node.pid(DAEMON), node.pid(KUBELET)
    descriptors = count_descriptors(daemon), count_descriptors(kubelet)
    break_often(ROUNDS)
    assert node.pid(DAEMON) == daemon
    wait_for(
        "both have as many descriptors as before",
        lambda: count_descriptors(daemon) <= descriptors[0] and count_descriptors(kubelet) <= descriptors[1] + 2,
        timeout_s=10,
    )


def test_a_socket_that_is_removed_comes_back_and_the_kubelet_notices_nothing(node: LabNode, folder: Path) -> None:
    registrations, socket = node.registrations(), folder / f"{SOCKET}.sock"
    socket.unlink()

    wait_for("the socket is there", socket.exists)

    assert holds(lambda: node.knows_its_devices(len(node.uuids)), UNDISTURBED_S)
    assert node.registrations() == registrations


def test_a_folder_that_is_removed_comes_back_and_pods_get_gpus(
    room: Room, stage: Stage, node: LabNode, folder: Path, registry: Path
) -> None:
    """The kubelet itself would be without its `kubelet.sock` and could write no checkpoint until it is restarted."""
    shutil.rmtree(folder)
    wait_for("the folder is there", folder.is_dir)
    assert_gives_gpus(room, node, "with-the-old-stream")

    before = node.registrations()
    break_stream(node)
    wait_until_known(stage, node, before)
    assert list(registry.glob(f"{SOCKET}*"))
    assert_gives_gpus(room, node, "with-another-stream")

    before = node.registrations()
    node.unit("restart", KUBELET)
    wait_until_known(stage, node, before)
    assert holds(lambda: node.knows_its_devices(len(node.uuids)), UNDISTURBED_S)  # both ways do not fight
    assert (folder / "kubelet.sock").exists()


def test_a_kubelet_that_hangs_has_the_gpus_when_it_goes_on(stage: Stage, node: LabNode) -> None:
    registrations = node.registrations()
    node.unit("kill", "--signal=STOP", KUBELET)
    try:
        assert not holds(lambda: node.knows_its_devices(len(node.uuids)), UNDISTURBED_S)
    finally:
        node.unit("kill", "--signal=CONT", KUBELET)
    wait_for("the kubelet answers", lambda: node.knows_its_devices(len(node.uuids)))
    assert node.registrations() == registrations

    node.unit("kill", "--signal=STOP", KUBELET)
    try:
        node.unit("restart", DAEMON)
        assert holds(lambda: node.registrations() == registrations, UNDISTURBED_S)
    finally:
        node.unit("kill", "--signal=CONT", KUBELET)
    wait_until_known(stage, node, registrations)


def test_a_daemon_that_is_killed_is_back_and_its_pods_have_noticed_nothing(
    room: Room, stage: Stage, node: LabNode
) -> None:
    room.start(pod("holder", container(script=STAY, gpus=1), node=node.name))
    room.wait_running(["holder"])
    identity, given = room.identities("holder"), node.given_to(room.name, "holder")
    for _ in range(2):
        before = node.registrations()
        node.unit("kill", "--signal=KILL", DAEMON)
        wait_until_known(stage, node, before)
    assert (room.identities("holder"), node.given_to(room.name, "holder")) == (identity, given)


def test_a_daemon_that_stops_withdraws_its_gpus_first(stage: Stage, node: LabNode, folder: Path) -> None:
    """After the end of a stream alone a kubelet would go on to count GPUs, as unhealthy ones, for five minutes."""
    node.unit("stop", DAEMON)
    try:
        wait_for("no GPU is left", lambda: stage.api.capacity(node.name) == stage.api.allocatable(node.name) == 0)
        assert not list(folder.glob(f"{SOCKET}*"))
    finally:
        node.unit("start", DAEMON)
    stage.wait_for_gpus(node.name, len(node.uuids))


def test_a_released_node_offers_nothing_and_its_pods_go_on(room: Room, stage: Stage, node: LabNode) -> None:
    room.start(pod("holder", container(script=STAY, gpus=1), node=node.name))
    room.wait_running(["holder"])
    identity, given = room.identities("holder"), node.given_to(room.name, "holder")

    node.grapnel_node("release")
    try:
        stage.wait_for_gpus(node.name, 0)
        assert stage.api.capacity(node.name) == len(node.uuids)
        node.unit("restart", DAEMON)
        wait_for(f"{DAEMON} runs", lambda: node.state(DAEMON) == "active")
        assert holds(lambda: node.knows_its_devices(0), UNDISTURBED_S)
    finally:
        node.grapnel_node("resume")

    stage.wait_until_settled(node)
    assert (room.identities("holder"), node.given_to(room.name, "holder")) == (identity, given)


def test_a_pod_that_asks_for_more_gpus_than_are_healthy_is_told_so(room: Room, stage: Stage, node: LabNode) -> None:
    sick = node.uuids[-1]
    node.judge("set", sick, "unhealthy", "--reason", "smells of smoke")
    try:
        stage.wait_for_gpus(node.name, len(node.uuids) - 1)
        manifest = pod("greedy", container(gpus=len(node.uuids)))
        manifest["spec"]["nodeName"] = node.name  # past the scheduler, which would keep it waiting
        room.start(manifest)
        wait_for("the pod is refused", lambda: room.pod("greedy").status.phase == "Failed", evidence=room.evidence)
        events = "\n".join(room.api.events(room.name))
        assert "UnexpectedAdmissionError" in events
        assert f"Requested: {len(node.uuids)}, Available: {len(node.uuids) - 1}" in events
    finally:
        node.judge("set", sick, "healthy", "--reason", "it was the neighbour's lunch")
        node.judge("clear", sick)
    stage.wait_for_gpus(node.name, len(node.uuids))


def test_a_gpu_with_an_error_is_gone_alone_and_a_verdict_outlives_the_daemon(stage: Stage, node: LabNode) -> None:
    sick, rest = node.uuids[1], frozenset(node.uuids) - {node.uuids[1]}
    node.change_gpus(lambda machine: machine.with_xid(1, 48))  # double bit ECC: until the GPU is reset
    wait_for("only that GPU is gone", lambda: node.known() == rest, evidence=lambda: stage.evidence(node.name))
    assert "xid 48" in node.judge("show").lower()
    try:
        node.unit("restart", DAEMON)
        wait_until_offered(stage, node, rest)
        node.judge("set", sick, "healthy", "--reason", "it was reset")
        wait_until_offered(stage, node, rest | {sick})
        node.unit("restart", DAEMON)
        wait_until_offered(stage, node, rest | {sick})
    finally:
        node.judge("set", sick, "healthy", "--reason", "the end of a test")
        node.judge("clear", sick)
    stage.wait_for_gpus(node.name, len(node.uuids))


def wait_until_offered(stage: Stage, node: LabNode, uuids: frozenset[str]) -> None:
    wait_for("the kubelet knows these GPUs", lambda: node.known() == uuids, evidence=lambda: stage.evidence(node.name))


def test_a_kubelet_that_is_to_find_the_daemon_finds_it(
    room: Room, stage: Stage, node: LabNode, folder: Path, registry: Path
) -> None:
    before = node.registrations()
    with node.configured(registration="watcher"):
        wait_until_known(stage, node, before)
        assert not list(folder.glob(f"{SOCKET}*"))
        assert list(registry.glob(f"{SOCKET}*"))
        before = node.registrations()
        node.unit("restart", KUBELET)
        wait_until_known(stage, node, before)
        before = node.registrations()
        break_stream(node)
        wait_until_known(stage, node, before)
        assert_gives_gpus(room, node, "found")
    wait_until_known(stage, node, before + 1)
    assert not list(registry.glob(f"{SOCKET}*"))
