"""Whole daemons whose configuration is named by a label of their Node, and an API server that has the label."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from lab.cluster.certificates import Certificates
from lab.kubelet import Kubelet
from lab.podresources.server import serving
from plugin.settings.store import HeardLabel, read_heard_label
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.node_object.api_server import NODE, ApiServer, Failure, write_kubeconfig
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional  # whole daemons, one process a test

LABEL = "nvidia.com/device-plugin.config"
SHARED = "nvidia.com/gpu.shared"


class Node:
    """A daemon with two GPUs, a folder of files, a kubelet, and an API server."""

    def __init__(self, daemon: DaemonProcess, kubelet: Kubelet, server: ApiServer) -> None:
        self.daemon, self.kubelet, self.server = daemon, kubelet, server
        self.folder = daemon.node / "nvidia.d"
        self.folder.mkdir()
        for replicas in (2, 3):
            self.write(
                f"by-{replicas}", f"sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: {replicas}}}]}}}}"
            )
        self.write("renamed", "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}")
        self.write("broken", "flagz: {}")
        self.configure()

    def write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(f"version: v1\n{content}\n")

    def configure(self, **keys: object) -> None:
        config = {
            "nvidiaConfigFile": None,
            "nvidiaConfigFolder": str(self.folder),
            "kubernetesApi": str(write_kubeconfig(self.daemon.node / "kubeconfig", self.server)),
            "nodeName": NODE,
        }
        self.daemon.configure(**{**config, **keys})

    def label(self, value: str | None) -> None:
        labels = {key: pair for key, pair in self.server.state.labels.items() if key != LABEL}
        self.server.state.labels = labels if value is None else {**labels, LABEL: (value, "kubectl")}

    def wait(self, holds: Callable[[], bool]) -> None:
        wait_until(holds, self.daemon.log)

    def heard(self) -> HeardLabel | None:
        return read_heard_label(self.daemon.node / "state")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates") / "pki")
    made.prepare("127.0.0.1")
    return made


@pytest.fixture
def node(tmp_path: Path, certificates: Certificates) -> Iterator[Node]:
    daemon = DaemonProcess(tmp_path, 2)
    with Kubelet(daemon.kubelet_root) as kubelet, ApiServer(certificates) as server:
        with serving(daemon.kubelet_root, kubelet.device_manager.list_response):
            yield Node(daemon, kubelet, server)
            if daemon.is_running():
                daemon.kill()
        server.state.ended += 1


def test_a_node_begins_with_the_configuration_of_its_label(node: Node) -> None:
    node.label("by-3")
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 6)
    assert "devices=2" not in node.daemon.log(), "never offered in another way"
    assert node.heard() == HeardLabel("by-3")


def test_another_value_is_applied_to_the_running_daemon(node: Node) -> None:
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 2)
    node.label("by-2")
    node.kubelet.wait_for_devices(RESOURCE, 4)
    node.label("renamed")
    node.kubelet.wait_for_devices(SHARED, 4)
    node.wait(lambda: "resource=nvidia.com/gpu.shared" in node.daemon.log())
    node.label(None)
    node.kubelet.wait_for_devices(RESOURCE, 2)
    node.wait(lambda: node.heard() == HeardLabel(""))


def test_a_change_leaves_what_stays_the_same_alone(node: Node) -> None:
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 2)
    node.label("by-2")
    node.kubelet.wait_for_devices(RESOURCE, 4)
    node.label("by-3")
    node.kubelet.wait_for_devices(RESOURCE, 6)
    assert node.daemon.log().count("msg=registered") == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param("by-9", "by-9: no such file, and label", id="no such file"),
        pytest.param("broken", 'unknown key \\"flagz\\"', id="a file that is refused"),
    ],
)
def test_a_value_that_cannot_be_used_leaves_everything_as_it_is(node: Node, value: str, words: str) -> None:
    node.label("by-2")
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 4)
    node.label(value)
    node.daemon.wait_for_log(words)
    assert "the configuration stays" in node.daemon.log()
    node.wait(lambda: "grapnel.dev/config-problem" in node.server.state.annotations)
    heard = node.heard()
    assert heard is not None
    assert (heard.value, heard.refused) == ("by-2", value)
    assert node.kubelet.wait_for_devices(RESOURCE, 4)
    node.daemon.stop()
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 4)
    node.daemon.wait_for_log(words, times=2)
    node.write(value, "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 5}]}}")
    node.daemon.signal(signal.SIGHUP)
    node.kubelet.wait_for_devices(RESOURCE, 10)
    node.wait(lambda: "grapnel.dev/config-problem" not in node.server.state.annotations)
    assert node.heard() == HeardLabel(value)


def test_a_restart_needs_no_api(node: Node) -> None:
    node.label("by-3")
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 6)
    assert node.daemon.stop() == 0
    node.server.state.standing["/"] = Failure(503)
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 6)
    node.daemon.wait_for_log("refuses watch nodes (503)")
    node.daemon.signal(signal.SIGHUP)
    node.daemon.wait_for_log("configuration reloaded")
    node.kubelet.wait_for_devices(RESOURCE, 6)


@pytest.mark.slow
def test_a_first_start_does_not_wait_for_ever(node: Node) -> None:
    node.server.state.standing["/"] = Failure(503)
    node.configure(nvidiaConfigDefault="by-2")
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 4)
    assert "the label of the node is not known yet" in node.daemon.log()
    node.server.state.standing.clear()
    node.label("by-3")
    node.kubelet.wait_for_devices(RESOURCE, 6)


def test_a_first_start_can_be_stopped_while_it_waits(node: Node) -> None:
    node.server.state.standing["/"] = Failure(503)
    node.daemon.start()
    node.daemon.wait_for_log("refuses watch nodes (503)")
    assert node.kubelet.capacity(RESOURCE) == 0, "it waits"
    assert node.daemon.stop() == 0


def test_sighup_while_a_first_start_waits_is_heard_afterwards(node: Node) -> None:
    node.server.state.standing["/"] = Failure(503)
    node.configure(nvidiaConfigDefault="by-2")
    node.daemon.start()
    node.daemon.wait_for_log("refuses watch nodes (503)")
    node.configure(nvidiaConfigDefault="by-3")
    node.daemon.signal(signal.SIGHUP)
    node.server.state.standing.clear()
    node.kubelet.wait_for_devices(RESOURCE, 6)
    node.daemon.wait_for_log("configuration reloaded")


def test_sighup_begins_and_ends_the_choice(node: Node) -> None:
    node.label("by-3")
    node.configure(nvidiaConfigFolder=None)
    node.daemon.start()
    node.kubelet.wait_for_devices(RESOURCE, 2)
    node.configure()
    node.daemon.signal(signal.SIGHUP)
    node.kubelet.wait_for_devices(RESOURCE, 6)
    node.configure(nvidiaConfigFolder=None)
    node.daemon.signal(signal.SIGHUP)
    node.kubelet.wait_for_devices(RESOURCE, 2)
    node.label("by-2")
    node.daemon.signal(signal.SIGHUP)
    node.daemon.wait_for_log("configuration reloaded", times=3)
    assert json.loads((node.daemon.node / "state/config-label.json").read_text())["value"] == "by-3"
    assert node.kubelet.wait_for_devices(RESOURCE, 2)
