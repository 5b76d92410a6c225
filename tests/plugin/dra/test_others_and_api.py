"""The whole daemon as the driver of other devices than GPUs: a real API server, and calls as a kubelet makes them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lab.kubelet import Kubelet
from lab.kubelet.claims import DRIVER, DraKubelet, create_allocated, published
from lab.kubelet.device_manager import Container
from lab.sysfs import Tree, rdma_nic, virtual_function
from plugin.driver.snapshot import Snapshot
from plugin.kubelet.cdi_names import OTHERS
from tests.plugin.daemon.test_other_devices_of_daemon import RDMA, SRIOV, install
from tests.plugin.daemon_process import DaemonProcess
from tests.plugin.fakes import VERSION, gpu, gpus, write_driver
from tests.plugin.kubelet_pods import pod
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # a daemon of its own for each test, and an API server

CARD = "0000:41:00.0"
FIRST, SECOND = "pci-0000-41-00-1", "pci-0000-41-00-2"
BY_PLUGIN, BY_CLAIMS = "devicePlugin", "dra"


class Node:
    """A daemon on a node with two virtual functions and a card for many, and what the API has of it."""

    def __init__(self, control_plane: ControlPlane, name: str, folder: Path, kubelet: Kubelet) -> None:
        self.control_plane, self.name, self.kubelet = control_plane, name, kubelet
        self.daemon = DaemonProcess(folder, 2)
        self.daemon.kubelet_root = kubelet.folder.parent
        self.claims = DraKubelet(kubelet.folder.parent, OTHERS)
        self.kubeconfig = folder / "kubelet.conf"
        self.kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(name)))
        tree = Tree(folder)
        tree.add(
            rdma_nic(CARD, 0), virtual_function("0000:41:00.1", 1, CARD), virtual_function("0000:41:00.2", 2, CARD)
        )
        tree.add_nodes("infiniband/rdma_cm")
        (folder / "devices.d").mkdir()
        install(self.daemon, "sriov-rdma")
        install(self.daemon, "rdma-shared", unit={"count": 3})
        write_driver(self.daemon.driver, None)

    def declare(self, interface: str) -> None:
        self.daemon.configure(
            interface=interface,
            kubernetesApi=str(self.kubeconfig),
            nodeName=self.name,
            cdiFolder=str(self.daemon.node / "cdi"),
            sysRoot=str(self.daemon.node / "sys"),
            deviceClassesFolder=str(self.daemon.node / "devices.d"),
        )

    def change_to(self, interface: str) -> None:
        self.declare(interface)
        self.daemon.signal(signal.SIGHUP)

    def offered(self) -> dict[str, dict[str, Any]]:
        slices = [each["spec"] for each in published(self.control_plane, self.name)]
        return {row["name"]: row for each in slices if each["driver"] == OTHERS for row in each.get("devices", [])}

    def wait_for(self, *devices: str) -> None:
        wait_until(lambda: set(self.offered()) == set(devices), lambda: f"{self.offered()}\n{self.daemon.log()}")

    def register(self) -> str:
        wait_until(lambda: len(self.claims.sockets) == 1, self.daemon.log)
        self.claims.connect()
        return str(self.claims.take().name)

    def prepare(self, name: str, *devices: str, **result: object) -> tuple[str, list[str], str]:
        """Make a claim with these devices and prepare it; returns its UID, the engine's names, and what is wrong."""
        uid = create_allocated(self.control_plane, self.name, name, devices, driver=OTHERS, **result)
        found = self.claims.prepare(name, uid)
        return uid, [each for device in found.devices for each in device.cdi_device_ids], found.error

    def added(self, names: list[str]) -> list[dict[str, Any]]:
        file = json.loads((self.daemon.node / "cdi/grapnel-devices.json").read_text())
        edits = {f"{file['kind']}={each['name']}": each["containerEdits"] for each in file["devices"]}
        return [edits[each] for each in names]

    def explain(self, about: str) -> str:
        """Return what the daemon's command says of a device, in one line."""
        words = ["explain", about, "--config", str(self.daemon.node / "node.json")]
        command = [sys.executable, "-P", "-m", "plugin.launcher", *words]
        return " ".join(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())

    def ask_offered(self, timeout_s: int = 30) -> list[str]:
        """Ask the daemon's command what keeps devices from being offered as its file says."""
        words = ["offered", "--json", "--timeout", str(timeout_s), "--config", str(self.daemon.node / "node.json")]
        command = [sys.executable, "-P", "-m", "plugin.launcher", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        found: list[str] = json.loads(done.stdout)["problems"]
        return found

    def healthy(self, resource: str) -> int:
        return len(self.kubelet.healthy(resource))

    def close(self) -> None:
        self.claims.hang_up()
        self.control_plane.kubectl(["delete", "pods,resourceclaims", "--all", "--force", "--wait=false"])


@pytest.fixture
def node(control_plane: ControlPlane, node: str, tmp_path: Path) -> Iterator[Node]:
    with (
        Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as kubelet,
        closing(Node(control_plane, node, tmp_path, kubelet)) as made,
    ):
        yield made


def test_without_any_gpu_devices_are_published_prepared_and_given_back(node: Node) -> None:
    node.declare(BY_CLAIMS)
    with node.daemon:
        assert node.register() == OTHERS
        node.wait_for(FIRST, SECOND, "rdma-shared")
        assert node.offered()["rdma-shared"]["capacity"]["shares"]["value"] == "3"
        uid, names, error = node.prepare("one", FIRST)
        assert (names, error) == ([f"grapnel.dev/device={FIRST}"], "")
        (edits,) = node.added(names)
        assert [each["path"] for each in edits["deviceNodes"]] == [
            "/dev/infiniband/rdma_cm",
            "/dev/infiniband/uverbs1",
            "/dev/infiniband/umad1",
        ]
        assert edits["env"] == ["PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_RDMA=0000:41:00.1"]
        assert "claim one" in node.explain("0000:41:00.1")
        assert "default/one still has" in node.prepare("other", FIRST)[2]
        assert node.claims.health()[FIRST] == 1
        assert node.claims.unprepare("one", uid) == ""
        assert not list((node.daemon.node / "state/other-claims").glob("*.json"))


def test_a_daemon_that_was_killed_knows_its_claims_and_writes_no_slice_anew(node: Node) -> None:
    node.declare(BY_CLAIMS)
    with node.daemon:
        node.register()
        node.wait_for(FIRST, SECOND, "rdma-shared")
        _, names, error = node.prepare("both", FIRST, SECOND)
        assert error == ""
        before = published(node.control_plane, node.name)
        (socket,) = node.claims.sockets
        node.daemon.kill()
        node.daemon.start()
        wait_until(lambda: not socket.exists(), node.daemon.log)
        node.register()
        assert node.added(names)[-1] == {"env": ["PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_RDMA=0000:41:00.1,0000:41:00.2"]}
        assert "default/both still has" in node.prepare("other", SECOND)[2]
        assert published(node.control_plane, node.name) == before


def test_shares_are_counted_and_not_given_beyond_what_there_is(node: Node) -> None:
    node.declare(BY_CLAIMS)
    with node.daemon:
        node.register()
        node.wait_for(FIRST, SECOND, "rdma-shared")
        share = {"consumedCapacity": {"shares": "2"}}
        ids = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(2)]
        assert node.prepare("two", "rdma-shared", shareID=ids[0], **share)[2] == ""
        assert "still has" in node.prepare("more", "rdma-shared", shareID=ids[1], **share)[2]


def test_a_node_changes_over_under_pods_and_back(node: Node) -> None:
    node.declare(BY_PLUGIN)
    with node.daemon:
        wait_until(lambda: (node.healthy(SRIOV), node.healthy(RDMA)) == (2, 3), node.daemon.log)
        pods = [pod(name, Container("c", 1), resource=name_of) for name, name_of in (("nic", SRIOV), ("many", RDMA))]
        for each in pods:
            node.kubelet.admit(each)
        (given,) = node.kubelet.device_manager.allocated[SRIOV]
        held, free = (FIRST, SECOND) if given == "0000:41:00.1" else (SECOND, FIRST)
        node.change_to(BY_CLAIMS)
        node.register()
        node.wait_for(free, "rdma-shared")
        wait_until(lambda: node.offered()["rdma-shared"]["capacity"]["shares"]["value"] == "2", node.daemon.log)
        assert (node.healthy(SRIOV), node.healthy(RDMA)) == (0, 0)
        early, _, error = node.prepare("early", held)
        assert "nic as" in error
        for each in pods:
            node.kubelet.device_manager.remove(each)
        node.wait_for(free, held, "rdma-shared")
        uid, _, error = node.prepare("one", free)
        assert error == ""
        share = {"shareID": "00000000-0000-0000-0000-000000000001", "consumedCapacity": {"shares": "1"}}
        shared, _, error = node.prepare("share", "rdma-shared", **share)
        assert error == ""

        node.change_to(BY_PLUGIN)
        node.wait_for()
        wait_until(lambda: (node.healthy(SRIOV), node.healthy(RDMA)) == (1, 2), node.daemon.log)
        assert node.claims.unprepare("one", uid) == ""
        assert node.claims.unprepare("share", shared) == ""
        assert node.claims.unprepare("early", early) == ""
        wait_until(lambda: (node.healthy(SRIOV), node.healthy(RDMA)) == (2, 3), node.daemon.log)


def test_it_is_said_when_the_devices_are_not_given_as_declared(node: Node) -> None:
    write_driver(node.daemon.driver, Snapshot(VERSION, gpus(2)))
    node.declare(BY_CLAIMS)
    with node.daemon, closing_connection(DraKubelet(node.kubelet.folder.parent)) as of_gpus:
        wait_until(lambda: len(of_gpus.sockets) == 1, node.daemon.log)
        of_gpus.connect()
        of_gpus.take()
        wait_until(lambda: len(node.claims.sockets) == 1, node.daemon.log)
        assert node.ask_offered(timeout_s=1) == [f"the kubelet has not taken the driver {OTHERS}"]
        node.register()
        assert node.ask_offered() == []


def test_a_node_with_gpus_has_two_drivers_and_one_claim_may_have_of_both(node: Node) -> None:
    write_driver(node.daemon.driver, Snapshot(VERSION, gpus(2)))
    node.declare(BY_CLAIMS)
    with node.daemon, closing_connection(DraKubelet(node.kubelet.folder.parent)) as of_gpus:
        wait_until(lambda: len(of_gpus.sockets) == 1, node.daemon.log)
        of_gpus.connect()
        assert of_gpus.take().name == DRIVER
        assert node.register() == OTHERS
        node.wait_for(FIRST, SECOND, "rdma-shared")
        name = f"gpu-{gpu(0).uuid.removeprefix('GPU-')}"
        uid = create_allocated(node.control_plane, node.name, "both", [name], also={FIRST: OTHERS})
        given = [of_gpus.prepare("both", uid), node.claims.prepare("both", uid)]
        assert [each.error for each in given] == ["", ""]
        assert [one.device_name for each in given for one in each.devices] == [name, FIRST]
        assert [of_gpus.unprepare("both", uid), node.claims.unprepare("both", uid)] == ["", ""]


@contextmanager
def closing_connection(kubelet: DraKubelet) -> Iterator[DraKubelet]:
    yield kubelet
    kubelet.hang_up()
