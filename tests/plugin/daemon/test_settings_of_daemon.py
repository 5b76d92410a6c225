"""The whole daemon with a file of NVIDIA's form beside its node.json."""

from __future__ import annotations

import signal
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from lab.kubelet import AllocationRefused, Kubelet
from lab.kubelet.endpoint import status_of
from plugin.cli import main
from plugin.cli.release import release_node
from plugin.driver.snapshot import Snapshot
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import VERSION, gpu, write_driver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.functional  # whole daemons, one process a test

BIG, SMALL = "nvidia.com/gpu-a100", "nvidia.com/gpu-l4"
NAMES = f"resources: {{gpus: [{{pattern: '*A100*', name: {BIG}}}, {{pattern: '*L4', name: {SMALL}}}]}}\n"
L4 = "NVIDIA L4"


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet-root", has_pod_resources=True) as stand_in:
        yield stand_in


@pytest.fixture
def node(tmp_path: Path, kubelet: Kubelet) -> DaemonProcess:
    process = DaemonProcess(tmp_path, 3)
    process.kubelet_root = kubelet.folder.parent
    process.configure(nvidiaConfigFile=str(tmp_path / "nvidia.yaml"))
    write_driver(process.driver, Snapshot(VERSION, (gpu(0), gpu(1), replace(gpu(2), model=L4))))
    return process


def write(node: DaemonProcess, text: str) -> None:
    (node.node / "nvidia.yaml").write_text(text)


def _allocated(kubelet: Kubelet) -> Any:
    """Return an answer for one GPU, which is free again afterwards."""
    response = kubelet.allocate(RESOURCE, 1, "pod").response
    kubelet.release("pod")
    return response


def test_products_are_resources_of_their_own(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, NAMES)
    with node:
        kubelet.wait_for_devices(BIG, 2)
        assert kubelet.wait_for_devices(SMALL, 1) == [gpu(2).uuid]
        assert kubelet.capacity(RESOURCE) == 0
        assert kubelet.allocate(SMALL, 1, "pod").device_ids == (gpu(2).uuid,)
        with pytest.raises(AllocationRefused):
            kubelet.allocate(SMALL, 1, "another")
        assert kubelet.allocate(BIG, 2, "third").device_ids == (gpu(0).uuid, gpu(1).uuid)


def test_a_device_of_another_resource_is_refused_in_words(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, NAMES)
    with node:
        kubelet.wait_for_devices(BIG, 2)
        kubelet.wait_for_devices(SMALL, 1)
        with pytest.raises(grpc.RpcError) as raised:
            kubelet.allocate(SMALL, 1, "pod", device_ids=[gpu(0).uuid])
    code, details = status_of(raised.value)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == f"device '{gpu(0).uuid}' is offered as {BIG}, not as {SMALL}"


def test_a_release_takes_every_resource_and_outlives_a_restart(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, NAMES)
    config = ["--config", str(node.node / "node.json")]
    nobody = node.node / "proc"  # what other processes of this machine hold is not part of this test
    nobody.mkdir()
    with node:
        kubelet.wait_for_devices(BIG, 2)
        kubelet.wait_for_devices(SMALL, 1)
        assert release_node(node.node / "node.json", timeout_s=30, as_json=False, proc=nobody) == 0
        assert (kubelet.healthy(BIG), kubelet.healthy(SMALL)) == ([], [])
        assert node.stop() == 0
        node.start()
        wait_until(lambda: (kubelet.capacity(BIG), kubelet.capacity(SMALL)) == (2, 1), node.log)
        assert (kubelet.healthy(BIG), kubelet.healthy(SMALL)) == ([], [])
        assert main(["resume", *config]) == 0
        kubelet.wait_for_devices(BIG, 2)
        kubelet.wait_for_devices(SMALL, 1)


def test_a_driver_that_goes_takes_the_health_of_every_resource(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, NAMES)
    with node:
        kubelet.wait_for_devices(BIG, 2)
        kubelet.wait_for_devices(SMALL, 1)
        write_driver(node.driver, None)
        kubelet.wait_for_devices(BIG, 0)
        kubelet.wait_for_devices(SMALL, 0)
        assert (kubelet.capacity(BIG), kubelet.capacity(SMALL)) == (2, 1)


def test_sighup_carries_out_another_naming(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, NAMES)
    with node:
        kubelet.wait_for_devices(BIG, 2)
        write(node, "version: v1\n")
        node.signal(signal.SIGHUP)
        kubelet.wait_for_devices(RESOURCE, 3)
        wait_until(lambda: (kubelet.capacity(BIG), kubelet.capacity(SMALL)) == (0, 0), node.log)


def test_sighup_with_an_unknown_key_changes_nothing(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, NAMES)
    with node:
        kubelet.wait_for_devices(BIG, 2)
        write(node, "flagz: {}\n")
        node.signal(signal.SIGHUP)
        node.wait_for_log("configuration not reloaded")
        assert 'unknown key \\"flagz\\", the nearest one is \\"flags\\"' in node.log()
        assert kubelet.wait_for_devices(BIG, 2) == [gpu(0).uuid, gpu(1).uuid]


def test_sighup_carries_out_another_strategy_without_registering_again(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "version: v1\n")
    with node:
        kubelet.wait_for_devices(RESOURCE, 3)
        write(node, "flags: {plugin: {deviceListStrategy: [cdi-cri, volume-mounts], deviceIDStrategy: index}}\n")
        node.signal(signal.SIGHUP)
        wait_until(lambda: bool(_allocated(kubelet).cdi_devices), node.log)
        response = _allocated(kubelet)
        (device,), (mount,) = response.cdi_devices, response.mounts
        index = device.name.removeprefix("nvidia.com/gpu=")
        assert index in {"0", "1", "2"}
        assert mount.container_path == f"/var/run/nvidia-container-devices/{index}"
        assert list(response.devices) == []
        assert node.log().count("msg=registered") == 1


def _make_channel(node: DaemonProcess) -> None:
    folder = node.node / "dev/nvidia-caps-imex-channels"
    folder.mkdir()
    (folder / "channel0").symlink_to("/dev/null")


def _has_channel(kubelet: Kubelet) -> bool:
    response = _allocated(kubelet)
    paths = [device.container_path for device in response.devices]
    is_there = "/dev/nvidia-caps-imex-channels/channel0" in paths
    assert (response.envs.get("NVIDIA_IMEX_CHANNELS") == "0") is is_there
    return is_there


def test_an_imex_channel_is_given_from_the_moment_that_it_exists(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "imex: {channelIDs: [0]}\n")
    with node:
        kubelet.wait_for_devices(RESOURCE, 3)
        node.wait_for_log("imex channel 0 does not exist: containers start without it")
        assert not _has_channel(kubelet)
        _make_channel(node)
        wait_until(lambda: _has_channel(kubelet), node.log)


def test_no_gpu_is_given_away_without_an_imex_channel_that_is_required(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "imex: {channelIDs: [0], required: true}\n")
    with node:
        node.wait_for_log("imex channel 0 does not exist: no gpu is given away, as imex.required is set")
        wait_until(lambda: kubelet.capacity(RESOURCE) == 3, node.log)
        assert kubelet.healthy(RESOURCE) == []
        with pytest.raises(AllocationRefused):
            kubelet.allocate(RESOURCE, 1, "pod")
        _make_channel(node)
        kubelet.wait_for_devices(RESOURCE, 3)
        assert _has_channel(kubelet)


def test_a_product_that_nothing_names_is_said_once(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, f"resources: {{gpus: [{{pattern: '*A100*', name: {BIG}}}]}}\n")
    with node:
        kubelet.wait_for_devices(BIG, 2)
        node.wait_for_log("no pattern of resources.gpus fits 'NVIDIA L4'")
        write_driver(node.driver, Snapshot(VERSION, (gpu(0), replace(gpu(2), model=L4))))
        kubelet.wait_for_devices(BIG, 1)
        assert node.log().count("no pattern of resources.gpus") == 1


def test_explain_tells_which_gpu_an_anchored_pattern_lost(
    kubelet: Kubelet, node: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    write(node, f'resources: {{gpus: [{{pattern: NVIDIA L, name: {SMALL}}}, {{pattern: "*", name: {BIG}}}]}}\n')
    with node:
        kubelet.wait_for_devices(BIG, 3)
        assert main(["config", "--explain", "--config", str(node.node / "node.json")]) == 0
    said = capsys.readouterr().err
    assert said.count("note: ") == 1
    assert "nvidia.yaml:1: pattern \"NVIDIA L\" is only a part of 'NVIDIA L4': " in said
    assert 'write "*NVIDIA L*" if a part is meant' in said


def test_a_node_of_which_nothing_is_offered_is_ready_all_the_same(node: DaemonProcess, tmp_path: Path) -> None:
    write(node, f"resources: {{gpus: [{{pattern: '*H100*', name: {BIG}}}]}}\n")
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        with node.start(notify_socket=address):
            assert manager.recv(4096).decode().startswith("READY=1\nSTATUS=no GPU is one that the settings offer")


def test_fail_on_init_error_ends_the_daemon_without_a_driver(node: DaemonProcess) -> None:
    write(node, "flags: {failOnInitError: true}\n")
    write_driver(node.driver, None)
    with node:
        wait_until(lambda: not node.is_running(), node.log)
    assert "DriverNotReady: nvml does not answer: driver not loaded" in node.log()


def test_fail_on_init_error_is_about_the_start_alone(kubelet: Kubelet, node: DaemonProcess) -> None:
    write(node, "flags: {failOnInitError: true}\n")
    with node:
        kubelet.wait_for_devices(RESOURCE, 3)
        write_driver(node.driver, None)
        kubelet.wait_for_devices(RESOURCE, 0)
        write_driver(node.driver, Snapshot(VERSION, (gpu(0), gpu(1), gpu(2))))
        kubelet.wait_for_devices(RESOURCE, 3)
        assert node.is_running()
