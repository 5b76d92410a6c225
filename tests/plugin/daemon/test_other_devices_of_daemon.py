"""The whole daemon with files in `devices.d`, on machines with and without GPUs."""

from __future__ import annotations

import json
import shutil
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import grpc
import pytest

from lab.kubelet import AllocationRefused, Kubelet
from lab.kubelet.endpoint import status_of
from lab.sysfs import PciDevice, Tree, fpga, rdma_nic, virtual_function
from plugin.cli import main
from plugin.cli.release import release_node
from plugin.devices.allocation.answer import ANNOTATION
from plugin.driver.snapshot import Snapshot
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import VERSION, gpu, write_driver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional  # whole daemons, one process a test

READY = Path(__file__).parents[3] / "deploy/devices"
SCHEMA = "grapnel.dev/device-class/v1alpha1"
RDMA, SRIOV = "rdma/hca_shared_devices_a", "nvidia.com/mlnx_sriov_rdma"
FPGA = "xilinx.com/fpga-xilinx_u200_xdma_201830_1-1542252769"


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as stand_in:
        yield stand_in


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def node(tmp_path: Path, kubelet: Kubelet) -> DaemonProcess:
    """Return a node with two GPUs whose driver is not loaded, and with no file in devices.d."""
    process = DaemonProcess(tmp_path, 2)
    process.kubelet_root = kubelet.folder.parent
    configure(process)
    (tmp_path / "devices.d").mkdir()
    write_driver(process.driver, None)
    return process


def configure(node: DaemonProcess, **keys: object) -> None:
    node.configure(sysRoot=str(node.node / "sys"), deviceClassesFolder=str(node.node / "devices.d"), **keys)


def install(node: DaemonProcess, name: str, **keys: object) -> None:
    """Put a ready file in place, with other values for some keys; a test does not wait for a minute."""
    document = json.loads((READY / f"{name}.json").read_text())
    (node.node / f"devices.d/{name}.json").write_text(json.dumps({**document, "rescanSeconds": 0.2, **keys}))


def write(node: DaemonProcess, name: str, **keys: object) -> None:
    document = {"schema": SCHEMA, "resource": f"example.com/{name}", "rescanSeconds": 0.2, **keys}
    (node.node / f"devices.d/{name}.json").write_text(json.dumps(document))


def load_driver(node: DaemonProcess) -> None:
    write_driver(node.driver, Snapshot(VERSION, (gpu(0), gpu(1))))


def registered_in_all(node: DaemonProcess, times: int) -> None:
    """Check how often anything was registered; the kubelet shows devices before it is logged."""
    node.wait_for_log("msg=registered", times)
    assert node.log().count("msg=registered") == times


def test_rdma_and_fpgas_are_given_without_any_driver(kubelet: Kubelet, node: DaemonProcess, tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0), fpga("0000:af:00.1", 130))
    tree.add_nodes("infiniband/rdma_cm")
    install(node, "rdma-shared")
    install(node, "xilinx-fpga")
    with node:
        kubelet.wait_for_devices(RDMA, 1000)
        kubelet.wait_for_devices(FPGA, 1)
        answer = kubelet.allocate(RDMA, 1, "pod").response
        names = ("rdma_cm", "uverbs0", "umad0", "issm0")
        assert [(one.container_path, one.host_path, one.permissions) for one in answer.devices] == [
            (f"/dev/infiniband/{name}", str(tree.dev_root / f"infiniband/{name}"), "rwm") for name in names
        ]
        given = kubelet.allocate(FPGA, 1, "pod")
        assert given.device_ids == ("0000:af:00.1",)
        assert [one.container_path for one in given.response.devices] == ["/dev/dri/renderD130"]
        for each in (answer, given.response):
            assert ANNOTATION not in each.annotations
            assert dict(each.envs) == {}
        with pytest.raises(AllocationRefused):
            kubelet.allocate(FPGA, 1, "another")
        assert kubelet.capacity(RESOURCE) == 0


def test_virtual_functions_tell_their_container_where_they_are(
    kubelet: Kubelet, node: DaemonProcess, tree: Tree
) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0))
    tree.add(*(virtual_function(f"0000:3b:00.{n}", n, "0000:3b:00.0") for n in (2, 3, 4)))
    tree.add_nodes("infiniband/rdma_cm")
    install(node, "sriov-rdma")
    with node:
        assert kubelet.wait_for_devices(SRIOV, 3) == ["0000:3b:00.2", "0000:3b:00.3", "0000:3b:00.4"]
        answer = kubelet.allocate(SRIOV, 2, "pod").response
        assert dict(answer.envs) == {"PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_RDMA": "0000:3b:00.2,0000:3b:00.3"}


def test_gpus_come_and_go_beside_them(kubelet: Kubelet, node: DaemonProcess, tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0))
    tree.add_nodes("infiniband/rdma_cm")
    install(node, "rdma-shared")
    with node:
        kubelet.wait_for_devices(RDMA, 1000)
        load_driver(node)
        kubelet.wait_for_devices(RESOURCE, 2)
        assert ANNOTATION in kubelet.allocate(RESOURCE, 1, "pod").response.annotations
        write_driver(node.driver, None)
        kubelet.wait_for_devices(RESOURCE, 0)
        kubelet.wait_for_devices(RDMA, 1000)
        registered_in_all(node, 2)


def test_devices_are_found_and_lost_while_the_daemon_runs(kubelet: Kubelet, node: DaemonProcess, tree: Tree) -> None:
    health = {"infiniband/*/ports/*/state": ["4: ACTIVE"]}
    write(node, "card", match={"folder": "class/infiniband"}, nodes=[{"path": "infiniband/{uverbs}"}], health=health)
    with node:
        load_driver(node)
        kubelet.wait_for_devices(RESOURCE, 2)
        tree.add(rdma_nic("0000:3b:00.0", 0), rdma_nic("0000:86:00.0", 1))
        kubelet.wait_for_devices("example.com/card", 2)
        tree.write("0000:3b:00.0", "infiniband/mlx5_0/ports/1/state", "1: DOWN")
        assert kubelet.wait_for_devices("example.com/card", 1) == ["0000:86:00.0"]
        assert kubelet.capacity("example.com/card") == 2
        node.wait_for_log("card: 0000:3b:00.0 is unhealthy: infiniband/*/ports/*/state is '1: DOWN'")
        with pytest.raises(grpc.RpcError) as raised:
            kubelet.allocate("example.com/card", 1, "pod", device_ids=["0000:3b:00.0"])
        assert status_of(raised.value)[0] is grpc.StatusCode.FAILED_PRECONDITION
        tree.write("0000:3b:00.0", "infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
        kubelet.wait_for_devices("example.com/card", 2)
        tree.remove_node("infiniband/uverbs1")
        assert kubelet.wait_for_devices("example.com/card", 1) == ["0000:3b:00.0"]
        tree.unplug("0000:3b:00.0")
        wait_until(lambda: kubelet.capacity("example.com/card") == 1, node.log)
        registered_in_all(node, 2)


def test_sighup_changes_one_resource_and_leaves_the_others(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "one", unit={"count": 2})
    write(node, "two", unit={"count": 3})
    load_driver(node)
    with node:
        for resource, count in (("example.com/one", 2), ("example.com/two", 3), (RESOURCE, 2)):
            kubelet.wait_for_devices(resource, count)
        write(node, "two", unit={"count": 5})
        write(node, "three", unit={"count": 1})
        node.signal(signal.SIGHUP)
        kubelet.wait_for_devices("example.com/two", 5)
        kubelet.wait_for_devices("example.com/three", 1)
        (node.node / "devices.d/one.json").unlink()
        node.signal(signal.SIGHUP)
        wait_until(lambda: kubelet.capacity("example.com/one") == 0, node.log)
        assert kubelet.wait_for_devices("example.com/two", 5) == [f"two::{number}" for number in range(5)]
        registered_in_all(node, 4)


def test_sighup_with_a_bad_file_keeps_what_it_said_before(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "one", unit={"count": 2})
    write(node, "two", unit={"count": 3})
    with node:
        kubelet.wait_for_devices("example.com/two", 3)
        write(node, "one", unit={"count": 4})
        write(node, "two", unit={"count": 0})
        node.signal(signal.SIGHUP)
        node.wait_for_log("two.json: unit: must be a whole number from 1 to 10000; it counts as it was before")
        kubelet.wait_for_devices("example.com/one", 4)
        assert len(kubelet.wait_for_devices("example.com/two", 3)) == 3


def test_a_bad_file_at_the_start_costs_nobody_anything(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "one", unit={"count": 2})
    (node.node / "devices.d/two.json").write_text("{")
    load_driver(node)
    with node:
        kubelet.wait_for_devices("example.com/one", 2)
        kubelet.wait_for_devices(RESOURCE, 2)
        node.wait_for_log("two.json: not valid json")


def test_another_name_for_gpus_leaves_other_devices_alone(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "one", unit={"count": 2})
    load_driver(node)
    with node:
        kubelet.wait_for_devices("example.com/one", 2)
        kubelet.wait_for_devices(RESOURCE, 2)
        configure(node, resource="example.com/gpu")
        node.signal(signal.SIGHUP)
        kubelet.wait_for_devices("example.com/gpu", 2)
        wait_until(lambda: kubelet.capacity(RESOURCE) == 0, node.log)
        assert kubelet.wait_for_devices("example.com/one", 2) == ["one::0", "one::1"]
        registered_in_all(node, 3)


def test_another_kubelet_gets_them_and_the_one_before_loses_them(
    kubelet: Kubelet, node: DaemonProcess, tmp_path: Path
) -> None:
    write(node, "one", unit={"count": 2})
    with node, Kubelet(tmp_path / "other-root") as other:
        kubelet.wait_for_devices("example.com/one", 2)
        configure(node, kubeletRoot=str(other.folder.parent))
        node.signal(signal.SIGHUP)
        other.wait_for_devices("example.com/one", 2)
        kubelet.wait_for_devices("example.com/one", 0)


def test_a_name_that_gpus_have_stays_theirs(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "gpu", resource=RESOURCE, unit={"count": 7})
    load_driver(node)
    with node:
        node.wait_for_log(f"gpu: nothing is offered as {RESOURCE}: GPUs have that name")
        assert kubelet.wait_for_devices(RESOURCE, 2) == [gpu(0).uuid, gpu(1).uuid]


def test_a_network_card_is_taken_near_the_gpu_of_its_container(
    kubelet: Kubelet, node: DaemonProcess, tree: Tree
) -> None:
    """Each GPU is on a NUMA node of its own; the cards' list begins with the other one's."""
    for number, numa_node in ((0, 1), (1, 0)):
        tree.add(PciDevice(gpu(number).pci_address, "0x10de", "0x20b2", "0x030200", "nvidia", numa_node))
    tree.add(*(rdma_nic(f"0000:{0x3A + n:02x}:00.0", n, numa_node=n // 2) for n in range(4)))
    write(node, "card", match={"folder": "class/infiniband"})
    load_driver(node)
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.wait_for_devices("example.com/card", 4)
        kubelet.allocate(RESOURCE, 1, "pod", device_ids=[gpu(0).uuid])
        assert kubelet.allocate("example.com/card", 1, "pod").device_ids == ("0000:3c:00.0",)
        assert kubelet.allocate("example.com/card", 1, "another").device_ids == ("0000:3a:00.0",)


def test_a_release_of_the_driver_takes_no_other_device(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "one", unit={"count": 2})
    load_driver(node)
    nobody = node.node / "proc"
    nobody.mkdir()
    with node:
        kubelet.wait_for_devices("example.com/one", 2)
        kubelet.wait_for_devices(RESOURCE, 2)
        assert release_node(node.node / "node.json", timeout_s=30, as_json=False, proc=nobody) == 0
        assert kubelet.healthy(RESOURCE) == []
        assert kubelet.healthy("example.com/one") == ["one::0", "one::1"]


def test_a_kubelet_that_restarts_gets_them_again(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "one", unit={"count": 2})
    with node:
        kubelet.wait_for_devices("example.com/one", 2)
        kubelet.restart()
        kubelet.wait_for_devices("example.com/one", 2)


def test_a_daemon_that_stops_withdraws_them(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "one", unit={"count": 2})
    with node:
        kubelet.wait_for_devices("example.com/one", 2)
        assert node.stop() == 0
        assert kubelet.healthy("example.com/one") == []


def test_systemd_is_told_of_them(node: DaemonProcess, kubelet: Kubelet, tmp_path: Path) -> None:
    write(node, "one", unit={"count": 2})
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        with node.start(notify_socket=address):
            kubelet.wait_for_devices("example.com/one", 2)
            while "other devices: example.com/one" not in manager.recv(4096).decode():
                pass


def test_metrics_count_units_by_resource(kubelet: Kubelet, node: DaemonProcess, tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0), rdma_nic("0000:86:00.0", 1, state="1: DOWN"))
    health = {"infiniband/*/ports/*/state": ["4: ACTIVE"]}
    write(node, "card", match={"folder": "class/infiniband"}, health=health)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    configure(node, metricsAddress=f"127.0.0.1:{port}")
    with node:
        kubelet.wait_for_devices("example.com/card", 1)
        node.wait_for_log("msg=metrics")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    labels = 'resource="example.com/card",class="card"'
    assert f'grapnel_other_device_units{{{labels},state="healthy"}} 1' in page
    assert f'grapnel_other_device_units{{{labels},state="unhealthy"}} 1' in page


def test_without_files_nothing_of_it_is_loaded(kubelet: Kubelet, node: DaemonProcess) -> None:
    shutil.rmtree(node.node / "devices.d")
    load_driver(node)
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        threads = [
            Path(f"/proc/{node.pid}/task/{one.name}/comm").read_text()
            for one in Path(f"/proc/{node.pid}/task").iterdir()
        ]
    assert not any("other-devices" in name for name in threads)


def test_the_tool_shows_them_without_a_driver(
    node: DaemonProcess, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.add(replace(rdma_nic("0000:3b:00.0", 0), numa_node=1))
    install(node, "rdma-shared")
    write(node, "bad", unit={"count": 0})
    config = ["--config", str(node.node / "node.json")]
    assert main(["devices", *config]) == 0
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()][-2:] == [
        ["RESOURCE", "CLASS", "UNITS", "HEALTHY", "NUMA", "DEVICES"],
        [RDMA, "rdma-shared", "1000", "0", "1", "rdma-shared"],
    ]
    assert "it has no device node infiniband/rdma_cm" in said.err
    assert "bad.json: unit: must be a whole number" in said.err
    assert main(["devices", "--json", *config]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["otherDevices"]
    assert shown["numaNodes"] == [1]
    assert shown["devices"][0]["reason"] == "it has no device node infiniband/rdma_cm"
    assert main(["config", "--explain", *config]) == 0
    said = capsys.readouterr()
    assert f"devices.rdma-shared  {RDMA}: 1000 in all" in " ".join(said.out.split()).replace(" rdma/", "  rdma/")
    assert "bad.json: unit" in said.err
