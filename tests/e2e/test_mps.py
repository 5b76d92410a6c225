"""A GPU that pods share through MPS: control daemons in units of a real systemd, and clients in containers of pods.

The control program is the laboratory's, with NVIDIA's commands and answers; programs in pods are its clients through
the simulated CUDA library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import mps
from lab.nvml import state as nvml_state
from tests.e2e.manifests import LOOK, TEST
from tests.e2e.parts import SHARED, asks, settings, sharing, wait_offered
from tests.e2e.stage import DAEMON
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.manifests import Manifest
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

REPLICAS, CEILING_MIB, THREADS = 4, 10240, 25
SHARING = sharing("mps", REPLICAS, "0")
OUT_OF_MEMORY = 2
DEFAULT, EXCLUSIVE_PROCESS = 0, 3
ROOT = "/run/grapnel/mps"
# Has two thirds of the ceiling, asks for as much again, and for a little.
PROGRAM = f"{LOOK}\nenv | grep ^CUDA_\ndf /dev/shm | sed 1d\necho looked\nexec gpu-test allocate 7000 7000 3000\n"


@pytest.fixture(scope="module")
def nodes(lab_nodes: tuple[LabNode, ...]) -> Iterator[tuple[LabNode, ...]]:
    """The nodes, with the programs of MPS: three container engines, and two versions of systemd."""
    for node in lab_nodes:
        mps.install_programs(node.node.root)
    yield lab_nodes
    for node in lab_nodes:
        mps.remove_programs(node.node.root)


def client(name: str, node: LabNode) -> Manifest:
    return asks(name, node, SHARED, script=PROGRAM, image=TEST)


class Mps:
    """The control daemon of the GPU that is shared, seen from its node."""

    def __init__(self, node: LabNode) -> None:
        self._node = node
        self.uuid = node.uuids[0]
        self.unit = f"grapnel-mps-{self.uuid}.service"
        self.pipe = f"{ROOT}/{self.uuid}/pipe"

    def say(self, command: str) -> list[str]:
        """Return what the control daemon answers, as a person would ask it."""
        said = f"echo {command} | CUDA_MPS_PIPE_DIRECTORY={self.pipe} {mps.CONTROL}"
        return self._node.node.run(["sh", "-c", said]).stdout.split()

    def clients(self) -> list[str]:
        return [pid for server in self.say("get_server_list") for pid in self.say(f"get_client_list {server}")]

    def compute_mode(self) -> int:
        machine = nvml_state.read(self._node.node.nvml_library)
        return next(gpu.compute_mode for gpu in machine.gpus if gpu.uuid == self.uuid)

    def units(self) -> str:
        argv = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "grapnel-mps-*"]
        return self._node.node.run(argv).stdout

    def has_ended(self) -> bool:
        return not self.units() and self.compute_mode() == DEFAULT


def test_pods_share_a_gpu_side_by_side_and_keep_to_their_ceilings(
    room: Room, stage: Stage, nodes: tuple[LabNode, ...]
) -> None:
    node = nodes[0]
    served = Mps(node)
    names = ["client-1", "client-2"]
    with settings(node, SHARING):
        wait_offered(stage, node, shared=REPLICAS, whole=len(node.uuids) - 1)
        assert served.compute_mode() == EXCLUSIVE_PROCESS
        room.start(*(client(name, node) for name in names))
        room.wait_running(names)
        logs = {name: wait_for(f"{name} has allocated", lambda name=name: allocated(room, name)) for name in names}
        for name, log in logs.items():
            assert room.sight(name).uuids == frozenset({served.uuid})
            assert f"CUDA_MPS_PIPE_DIRECTORY={served.pipe}" in log
            assert f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={served.uuid}={CEILING_MIB}M" in log
            assert f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={THREADS}" in log
            assert any(line.startswith("grapnel-mps") for line in log), log  # what is mounted at /dev/shm
            assert log[-4:-1] == ["7000 0", f"7000 {OUT_OF_MEMORY}", "3000 0"]
        assert len(served.clients()) == len(names)
        room.clear()
    wait_offered(stage, node, shared=0, whole=len(node.uuids))
    wait_for("nothing is left of MPS", served.has_ended, evidence=served.units)


def allocated(room: Room, name: str) -> list[str]:
    log = room.api.log(room.name, name, "main").splitlines()
    return log if log and log[-1] == "allocated" else []


def test_a_gpu_is_not_offered_until_its_control_daemon_is_back(
    room: Room, stage: Stage, nodes: tuple[LabNode, ...]
) -> None:
    node = nodes[-1]
    served = Mps(node)
    with settings(node, SHARING):
        wait_offered(stage, node, shared=REPLICAS)
        before = node.started(served.unit)
        mps.remove_programs(node.node.root)
        node.node.run(["systemctl", "kill", "--signal", "KILL", "--kill-whom", "main", served.unit])
        wait_offered(stage, node, shared=0, whole=len(node.uuids) - 1)
        assert f"{mps.CONTROL} is not installed" in node.journal(DAEMON, 5)
        mps.install_programs(node.node.root)
        wait_offered(stage, node, shared=REPLICAS)
        assert node.started(served.unit) != before
        room.start(client("afterwards", node))
        room.wait_running(["afterwards"])
        wait_for("it is a client", served.clients)
        room.clear()
    wait_offered(stage, node, shared=0, whole=len(node.uuids))


def test_what_runs_through_mps_stays_when_the_daemon_restarts_and_when_sharing_ends(
    room: Room, stage: Stage, nodes: tuple[LabNode, ...]
) -> None:
    node = nodes[1]
    served = Mps(node)
    with settings(node, SHARING):
        wait_offered(stage, node, shared=REPLICAS)
        room.start(client("client", node))
        room.wait_running(["client"])
        wait_for("it is a client", served.clients)
        clients, identities, started = served.clients(), room.identities("client"), node.started(served.unit)
        registered = node.registrations()
        node.unit("restart", DAEMON)
        wait_for("the daemon has registered", lambda: node.registrations() > registered)
        wait_offered(stage, node, shared=REPLICAS, whole=len(node.uuids) - 1)
        room.start(client("second", node))
        room.wait_running(["second"])
        wait_for("both are clients", lambda: len(served.clients()) > len(clients))
        stage.api.delete_pod(room.name, "second")
        wait_for("the second one has left", lambda: served.clients() == clients)
    wait_offered(stage, node, shared=0, whole=len(node.uuids) - 1)
    assert (served.clients(), room.identities("client"), node.started(served.unit)) == (clients, identities, started)
    room.clear()
    wait_offered(stage, node, whole=len(node.uuids))
    wait_for("nothing is left of MPS", served.has_ended, evidence=served.units)
