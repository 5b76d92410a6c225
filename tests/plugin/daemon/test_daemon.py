"""The whole daemon as a process: drivers that come and go, signals, systemd, the hook."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import AllocationRefused, Kubelet
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import VERSION, gpu, gpus, write_driver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.functional  # whole daemons, one process a test


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path / "kubelet-root") as stand_in:
        yield stand_in


@pytest.fixture
def node(tmp_path: Path, kubelet: Kubelet) -> DaemonProcess:
    process = DaemonProcess(tmp_path)
    process.kubelet_root = kubelet.folder.parent
    process.configure()
    return process


def test_a_container_gets_its_nodes_environment_and_annotation(kubelet: Kubelet, node: DaemonProcess) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        response = kubelet.allocate(RESOURCE, 1, "pod").response
    dev = node.node / "dev"
    assert [(spec.container_path, spec.host_path, spec.permissions) for spec in response.devices] == [
        (f"/dev/{name}", f"{dev}/{name}", "rw") for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0")
    ]
    assert dict(response.envs) == {"NVIDIA_VISIBLE_DEVICES": gpu(0).uuid}
    assert dict(response.annotations) == {"grapnel.dev/allocation": gpu(0).uuid}
    assert (list(response.mounts), list(response.cdi_devices)) == ([], [])


def test_a_missing_driver_is_waited_for_quietly(kubelet: Kubelet, node: DaemonProcess) -> None:
    write_driver(node.driver, None)
    with node:
        node.wait_for_log("driver not loaded")
        write_driver(node.driver, Snapshot(VERSION, gpus(2)))
        kubelet.wait_for_devices(RESOURCE, 2)
        assert node.log().count("driver not loaded") == 1


def test_a_lost_gpu_is_unhealthy_alone_and_comes_back(kubelet: Kubelet, node: DaemonProcess) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        write_driver(node.driver, Snapshot(VERSION, (gpu(0),), (LostGpu(1, gpu(1).uuid, "gpu is lost"),)))
        assert kubelet.wait_for_devices(RESOURCE, 1) == [gpu(0).uuid]
        assert kubelet.capacity(RESOURCE) == 2
        assert kubelet.allocate(RESOURCE, 1, "a").device_ids == (gpu(0).uuid,)
        with pytest.raises(AllocationRefused):
            kubelet.allocate(RESOURCE, 1, "b")
        write_driver(node.driver, Snapshot(VERSION, gpus(2)))
        kubelet.wait_for_devices(RESOURCE, 2)
        node.wait_for_log('msg="healthy again"')


def test_a_driver_that_goes_takes_health_and_another_one_brings_it_back(kubelet: Kubelet, node: DaemonProcess) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        write_driver(node.driver, None)
        kubelet.wait_for_devices(RESOURCE, 0)
        assert kubelet.capacity(RESOURCE) == 2
        write_driver(node.driver, Snapshot("560.35.05", gpus(2)))
        kubelet.wait_for_devices(RESOURCE, 2)
        node.wait_for_log("version=560.35.05")


def test_a_missing_uvm_node_is_said_once_and_left_out(kubelet: Kubelet, node: DaemonProcess) -> None:
    (node.node / "dev/nvidia-uvm").unlink()
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        response = kubelet.allocate(RESOURCE, 2, "pod").response
        assert "/dev/nvidia-uvm" not in [spec.container_path for spec in response.devices]
        (node.node / "dev/nvidia-uvm").symlink_to("/dev/null")
        node.wait_for_log("msg=resolved topic=nvidia-uvm")
        assert node.log().count("nvidia-uvm does not exist") == 1


def test_sighup_rereads_the_configuration(kubelet: Kubelet, node: DaemonProcess) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.configure(resource="example.com/gpu")
        node.signal(signal.SIGHUP)
        kubelet.wait_for_devices("example.com/gpu", 2)
        assert kubelet.capacity(RESOURCE) == 0


def test_sighup_forgets_what_is_gone_for_good(kubelet: Kubelet, node: DaemonProcess) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        write_driver(node.driver, Snapshot(VERSION, gpus(1)))
        kubelet.wait_for_devices(RESOURCE, 1)
        assert kubelet.capacity(RESOURCE) == 2
        node.signal(signal.SIGHUP)
        wait_until(lambda: kubelet.capacity(RESOURCE) == 1, node.log)


def test_sighup_with_a_broken_configuration_changes_nothing(kubelet: Kubelet, node: DaemonProcess) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.configure(resuorce="example.com/gpu")
        node.signal(signal.SIGHUP)
        node.wait_for_log("configuration not reloaded")
        assert "resource" in node.log().partition("not reloaded")[2]
        kubelet.restart()
        kubelet.wait_for_devices(RESOURCE, 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_daemon_while_it_waits_for_a_driver(node: DaemonProcess, number: int) -> None:
    write_driver(node.driver, None)
    with node:
        node.wait_for_log("driver not loaded")
        node.signal(number)
        assert node.stop() == 0


def receive(systemd: socket.socket) -> str:
    return systemd.recv(4096).decode()


def test_systemd_is_told_about_the_registration_and_the_end(
    kubelet: Kubelet, node: DaemonProcess, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(20)
        systemd.bind(str(tmp_path / "notify"))
        with node.start(notify_socket=str(tmp_path / "notify")):
            assert receive(systemd) == "READY=1\nSTATUS=registered with the kubelet"
            assert node.stop() == 0
            assert receive(systemd) == "STOPPING=1"
    assert kubelet.capacity(RESOURCE) == 0


def test_systemctl_status_says_that_a_changed_configuration_is_refused_until_it_is_not(
    kubelet: Kubelet, node: DaemonProcess, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(20)
        systemd.bind(str(tmp_path / "notify"))
        with node.start(notify_socket=str(tmp_path / "notify")):
            assert receive(systemd).endswith("STATUS=registered with the kubelet")
            kubelet.wait_for_devices(RESOURCE, 2)
            node.configure(resuorce="example.com/gpu")
            node.signal(signal.SIGHUP)
            said = receive(systemd)
            assert said.startswith("STATUS=registered with the kubelet; ")
            assert "is refused" in said
            assert "resuorce" in said
            node.configure()
            node.signal(signal.SIGHUP)
            assert receive(systemd) == "STATUS=registered with the kubelet"


def test_a_node_without_a_driver_counts_as_started(node: DaemonProcess, tmp_path: Path) -> None:
    write_driver(node.driver, None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(20)
        systemd.bind(str(tmp_path / "notify"))
        with node.start(notify_socket=str(tmp_path / "notify")):
            assert receive(systemd) == "READY=1\nSTATUS=nvml does not answer: driver not loaded"


def write_hook(node: DaemonProcess, body: str) -> None:
    hook = node.node / "grapnel-hook"
    hook.write_text(f"#!/bin/sh\n{body}\n")
    hook.chmod(0o755)


def test_the_hook_refreshes_at_start_and_when_the_driver_changed(node: DaemonProcess) -> None:
    calls = node.node / "calls"
    write_hook(node, f'echo "$@" >> {calls}')
    with node:
        node.wait_for_log("host driver inventory refreshed")
        write_driver(node.driver, Snapshot("560.35.05", gpus(2)))
        node.wait_for_log("host driver inventory refreshed", times=2)
    assert calls.read_text() == "refresh\nrefresh\n"


def test_a_hook_that_fails_is_logged_so_that_it_can_be_pasted(kubelet: Kubelet, node: DaemonProcess) -> None:
    write_hook(node, "echo 'no driver files' >&2; exit 1")
    with node:
        node.wait_for_log(f'command="{node.node}/grapnel-hook refresh"')
        assert 'problem="exit code 1: no driver files"' in node.log()
        kubelet.wait_for_devices(RESOURCE, 2)


def test_the_hook_is_not_left_behind_when_the_daemon_stops(node: DaemonProcess) -> None:
    write_hook(node, f"echo $$ > {node.node}/pid.new; mv {node.node}/pid.new {node.node}/pid; exec sleep 60")
    with node:
        wait_until((node.node / "pid").exists, node.log)
        assert node.stop() == 0
    pid = int((node.node / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_driver_that_hangs_keeps_neither_pods_nor_the_end_waiting(kubelet: Kubelet, node: DaemonProcess) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        pipe = node.node / "pipe"
        os.mkfifo(pipe)
        pipe.rename(node.driver)
        silent_writer = open_when_read(node.driver)
        kubelet.restart()
        kubelet.wait_for_devices(RESOURCE, 2)
        assert kubelet.allocate(RESOURCE, 1, "pod").device_ids == (gpu(0).uuid,)
        assert node.stop() == 0
        assert "its session is left open" in node.log()
        os.close(silent_writer)


def open_when_read(pipe: Path) -> int:
    """Open a pipe for writing as soon as somebody reads it: the reader then waits for ever."""
    opened: list[int] = []

    def is_read() -> bool:
        with suppress(OSError):  # ENXIO: nobody reads yet
            opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    wait_until(is_read, lambda: f"nobody reads {pipe}")
    return opened[0]
