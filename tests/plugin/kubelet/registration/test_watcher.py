"""The daemon beside a kubelet that finds plugins by itself: real processes, real gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet, Mode
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import gpu
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional  # whole daemons, one process a test

SOCKETS = "grapnel-nvidia.com_gpu~*.sock"


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    stand_in = Kubelet(tmp_path / "kubelet", watches_plugins=True)
    yield stand_in
    stand_in.stop()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess(tmp_path, first_stream_s=0.3, look_s=0.1, backoff_min_s=0.05, backoff_max_s=0.1)
    process.configure(registration="watcher")
    with process:
        yield process


def wait_for_registrations(kubelet: Kubelet, count: int) -> None:
    wait_until(lambda: kubelet.registry.registrations >= count, lambda: f"{kubelet.registry.registrations=}")


def socket_of(kubelet: Kubelet) -> Path:
    """Return the one socket that the kubelet can find."""
    (found,) = kubelet.plugins_folder.glob(SOCKETS)
    return found


def test_a_kubelet_finds_the_devices(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    assert kubelet.wait_for_devices(RESOURCE, 2) == [gpu(0).uuid, gpu(1).uuid]
    daemon.wait_for_log("msg=registered")
    assert list(kubelet.plugins_folder.iterdir()) == [socket_of(kubelet)]
    assert [path.name for path in kubelet.folder.iterdir()] == ["kubelet.sock"]
    assert kubelet.allocate(RESOURCE, 1, "pod").device_ids == (gpu(0).uuid,)


def test_a_kubelet_that_comes_later_or_again_finds_the_devices(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    daemon.wait_for_log("kubelet.sock does not exist")
    for _ in range(3):
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.stop()
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.is_running()


def test_a_stream_that_ends_alone_leads_to_a_new_socket(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    kubelet.end_stream(RESOURCE)
    wait_for_registrations(kubelet, 2)
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.is_running()


def test_a_kubelet_that_starts_finds_the_socket_that_is_there(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    """A new one in its place would cost two rounds, each of them a second."""
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    daemon.wait_for_log("msg=registered")
    socket = socket_of(kubelet)
    kubelet.restart()
    kubelet.wait_for_devices(RESOURCE, 2)
    daemon.wait_for_log("msg=registered", times=2)
    assert (socket_of(kubelet), kubelet.registry.registrations) == (socket, 1)


def test_what_a_killed_daemon_left_behind_is_removed(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    of_another = kubelet.plugins_folder / "grapnel-nvidia.com_gpu-shared~1.sock"
    of_another.touch()
    left = socket_of(kubelet)
    daemon.kill()
    kubelet.wait_for_devices(RESOURCE, 0)
    daemon.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert socket_of(kubelet) != left
    assert of_another.exists()


def test_a_socket_that_was_removed_is_served_again(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    socket_of(kubelet).unlink()
    wait_for_registrations(kubelet, 2)
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.is_running()


def test_a_refusal_is_said_once_and_tried_again(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.set_mode(Mode.REFUSE)
    kubelet.start()
    daemon.wait_for_log("is not supported")
    kubelet.set_mode(Mode.SERVE)
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.log().count("is not supported") == 1


def test_a_kubelet_without_a_watcher_is_said_to_be_one(tmp_path: Path) -> None:
    process = DaemonProcess(tmp_path, register_s=0.2)
    process.configure(registration="watcher")
    (process.kubelet_root / "plugins_registry").mkdir()
    with process as daemon, Kubelet(tmp_path / "kubelet"):
        daemon.wait_for_log("no kubelet came within 0.2 s")
        assert daemon.stop() == 0
    assert list((process.kubelet_root / "plugins_registry").iterdir()) == []


def test_sigterm_withdraws_the_devices_and_the_socket(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.stop() == 0
    wait_until(lambda: kubelet.capacity(RESOURCE) == 0, lambda: f"{kubelet.capacity(RESOURCE)=}")
    assert list(kubelet.plugins_folder.iterdir()) == []
