"""Shares and memory units of the whole daemon: offered, given away, and changed while containers have them."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from lab.kubelet import AllocationRefused, Container, Kubelet, Pod
from lab.podresources.server import serving
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import gpu
from tests.plugin.mps.node import made_node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional  # whole daemons, one process a test

MEMORY = "aliyun.com/gpu-mem"
GIB = 2**30


def sharing(replicas: int, devices: str = "all") -> str:
    return f"sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: {replicas}, devices: {devices}}}]}}}}\n"


class Node:
    """A daemon with two GPUs of 80 GiB, and a kubelet that lists its pods."""

    def __init__(self, daemon: DaemonProcess, kubelet: Kubelet) -> None:
        self.daemon, self.kubelet = daemon, kubelet

    def configure(self, text: str = "version: v1\n", **keys: object) -> None:
        """Write both files; a running daemon reads them."""
        (self.daemon.node / "nvidia.yaml").write_text(text)
        self.daemon.configure(nvidiaConfigFile=str(self.daemon.node / "nvidia.yaml"), **keys)
        if self.daemon.is_running():
            self.daemon.signal(signal.SIGHUP)

    @contextmanager
    def running(self) -> Iterator[None]:
        with serving(self.daemon.kubelet_root, self.kubelet.device_manager.list_response), self.daemon:
            yield

    def admit(self, name: str, count: int = 1, resource: str = RESOURCE) -> Pod:
        pod = Pod(name, (Container("main", count),), resource=resource)
        self.kubelet.admit(pod)
        return pod

    def end(self, pod: Pod) -> None:
        self.kubelet.device_manager.end(pod)
        self.kubelet.device_manager.remove(pod)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    daemon = DaemonProcess(tmp_path, 2)
    with Kubelet(daemon.kubelet_root) as kubelet:
        yield Node(daemon, kubelet)


def test_shares_are_spread_and_each_pod_gets_a_gpu(node: Node) -> None:
    node.configure(sharing(3))
    with node.running():
        node.kubelet.wait_for_devices(RESOURCE, 6)
        answers = [node.kubelet.allocate(RESOURCE, 1, f"pod-{number}").response for number in range(6)]
        given = [answer.envs["NVIDIA_VISIBLE_DEVICES"] for answer in answers]
        assert given == [gpu(number % 2).uuid for number in range(6)]
        with pytest.raises(AllocationRefused):
            node.kubelet.allocate(RESOURCE, 1, "one too many")


def test_memory_units_of_a_pod_are_of_one_gpu_and_its_amount_is_marked(node: Node) -> None:
    node.configure(memoryUnits=[{"unitMiB": 10 * 1024}])
    with node.running():
        node.kubelet.wait_for_devices(MEMORY, 16)
        given = [node.kubelet.allocate(MEMORY, 5, f"pod-{number}").response for number in range(2)]
        given.append(node.kubelet.allocate(MEMORY, 3, "small").response)
        assert [answer.annotations["grapnel.dev/memory"] for answer in given] == [
            f"{gpu(0).uuid}={50 * GIB}",
            f"{gpu(1).uuid}={50 * GIB}",
            f"{gpu(0).uuid}={30 * GIB}",
        ]


def test_units_on_several_gpus_are_refused_in_words(node: Node) -> None:
    node.configure(memoryUnits=[{"unitMiB": 10 * 1024}])
    with node.running():
        node.kubelet.wait_for_devices(MEMORY, 16)
        for number in range(2):
            node.kubelet.allocate(MEMORY, 5, f"pod-{number}")
        with pytest.raises(Exception, match=f"no GPU of this node has 4 units of {MEMORY} free"):
            node.kubelet.allocate(MEMORY, 4, "late")
        assert len(node.kubelet.allocate(MEMORY, 3, "small").device_ids) == 3


def test_a_free_gpu_is_shared_at_once_and_one_in_use_when_it_is_free(node: Node) -> None:
    node.configure()
    with node.running():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        train = node.admit("train")
        node.configure(sharing(4))
        assert node.kubelet.wait_for_devices(RESOURCE, 4) == [f"{gpu(1).uuid}::{number}" for number in range(4)]
        node.daemon.wait_for_log(f"{gpu(0).uuid} waits: default/train as nvidia.com/gpu")
        node.end(train)
        node.kubelet.wait_for_devices(RESOURCE, 8)


def test_what_does_not_change_hears_nothing_of_a_change(node: Node) -> None:
    """Another number of shares is another list; the resource beside it keeps its stream, nothing registers again."""
    names = "resources: {gpus: [{pattern: '*A100*', name: gpu}]}\n"
    node.configure(names + sharing(2, '["0"]'), memoryUnits=[{"devices": ["1"], "unitMiB": 40 * 1024}])
    with node.running():
        node.kubelet.wait_for_devices(RESOURCE, 2)
        node.kubelet.wait_for_devices(MEMORY, 2)
        node.daemon.wait_for_log("msg=registered", 2)
        streams = node.kubelet.endpoint(MEMORY), node.kubelet.endpoint(RESOURCE)
        node.configure(names + sharing(5, '["0"]'), memoryUnits=[{"devices": ["1"], "unitMiB": 40 * 1024}])
        node.kubelet.wait_for_devices(RESOURCE, 5)
        assert (node.kubelet.endpoint(MEMORY), node.kubelet.endpoint(RESOURCE)) == streams
        assert node.daemon.log().count("msg=registered") == 2


def test_a_resource_that_is_not_declared_any_more_is_withdrawn(node: Node) -> None:
    node.configure(memoryUnits=[{"unitMiB": 40 * 1024}])
    with node.running():
        node.kubelet.wait_for_devices(MEMORY, 4)
        node.configure()
        node.kubelet.wait_for_devices(RESOURCE, 2)
        wait_until(lambda: not node.kubelet.is_connected(MEMORY), node.daemon.log)


def test_another_size_of_units_waits_also_after_a_restart(node: Node) -> None:
    node.configure(memoryUnits=[{"unitMiB": 40 * 1024}])
    with node.running():
        node.kubelet.wait_for_devices(MEMORY, 4)
        train = node.admit("train", 1, MEMORY)
    node.configure(memoryUnits=[{"unitMiB": 20 * 1024}])
    with node.running():
        node.daemon.start()
        assert node.kubelet.wait_for_devices(MEMORY, 4) == [f"{gpu(1).uuid}/{number}" for number in range(4)]
        node.daemon.wait_for_log("has units of 40960 MiB of it")
        node.end(train)
        node.kubelet.wait_for_devices(MEMORY, 8)
    assert set(json.loads((node.daemon.node / "state/memory-units.json").read_text())["unitBytes"].values()) == {
        20 * GIB
    }


def read(path: Path) -> str:
    """Return the text of a file, empty if it does not exist."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def test_shares_through_mps_come_and_go_with_their_control_daemon() -> None:
    """The pod's process is a client of its GPU's server; the other GPU is offered while the first one's is down."""
    with ExitStack() as stack:
        mps = stack.enter_context(made_node())
        daemon = DaemonProcess(mps.root.parent, 2)
        kubelet = stack.enter_context(Kubelet(daemon.kubelet_root))
        daemon.variables["GRAPNEL_TEST_MPS"] = str(mps.programs.root)
        node = Node(daemon, kubelet)
        node.configure(f"flags: {{mpsRoot: {mps.root}}}\n{sharing(4).replace('timeSlicing', 'mps')}")
        with node.running():
            kubelet.wait_for_devices(RESOURCE, 8)
            given = kubelet.allocate(RESOURCE, 1, "pod").response
            assert given.envs["CUDA_MPS_PIPE_DIRECTORY"] == str(mps.root / gpu(0).uuid / "pipe")
            assert given.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
            assert [mount.container_path for mount in given.mounts] == [
                given.envs["CUDA_MPS_PIPE_DIRECTORY"],
                "/dev/shm",
            ]
            with pytest.raises(grpc.RpcError, match="it may have one, as failRequestsGreaterThanOne says"):
                kubelet.allocate(RESOURCE, 2, "greedy")
            control = mps.root / gpu(0).uuid / "pipe/nvidia-cuda-mps-control.pid"
            first = control.read_text()
            os.kill(int(first), signal.SIGKILL)
            node.daemon.wait_for_log('gpu cannot be shared through mps" gpu=' + gpu(0).uuid)
            kubelet.wait_for_devices(RESOURCE, 8)
            wait_until(lambda: read(control) not in {"", first}, node.daemon.log)


def test_a_contradiction_keeps_the_configuration_that_was(node: Node) -> None:
    node.configure(sharing(3))
    with node.running():
        node.kubelet.wait_for_devices(RESOURCE, 6)
        node.configure(sharing(3), memoryUnits=[{}])
        node.daemon.wait_for_log("nvidia.com/gpu is divided into memory units of 1024 MiB, and into 3 shares")
        assert len(node.kubelet.healthy(RESOURCE)) == 6


def test_a_list_that_no_kubelet_takes_is_not_registered_and_the_other_resources_are(node: Node) -> None:
    """It was registered again and again, as the kubelet hung up on each of its lists."""
    node.configure(memoryUnits=[{"devices": ["0"], "unitMiB": 1}])
    with node.running():
        node.kubelet.wait_for_devices(RESOURCE, 1)
        node.daemon.wait_for_log("aliyun.com/gpu-mem is not offered: its list of 81,920 devices")
        assert node.kubelet.registry.registrations == 1
        node.configure(memoryUnits=[{"devices": ["0"], "unitMiB": 1024}])
        node.kubelet.wait_for_devices(MEMORY, 80)
