"""The daemon beside a kubelet that comes, goes, hangs and forgets: real processes, real gRPC."""

from __future__ import annotations

import os
import shutil
import socket
import time
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet, Mode
from lab.kubelet.endpoint import Endpoint
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import gpu
from tests.plugin.kubelet.pod_resources.served import one_container, serving
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional  # whole daemons, one process a test


REGISTERED = "msg=registered"
SOCKET = "grapnel-nvidia.com_gpu.sock"


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    stand_in = Kubelet(tmp_path / "kubelet")
    yield stand_in
    stand_in.stop()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path, first_stream_s=0.3) as process:
        yield process


def wait_for_registrations(kubelet: Kubelet, count: int) -> None:
    wait_until(lambda: kubelet.registry.registrations >= count, lambda: f"{kubelet.registry.registrations=}")


def test_a_kubelet_that_is_there_gets_the_devices(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    assert kubelet.wait_for_devices(RESOURCE, 2) == [gpu(0).uuid, gpu(1).uuid]
    daemon.wait_for_log(REGISTERED)


def test_a_kubelet_that_comes_later_is_waited_for(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    daemon.wait_for_log("kubelet.sock does not exist")
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.log().count("does not exist") == 1


def test_a_folder_that_comes_later_is_waited_for(kubelet: Kubelet, tmp_path: Path) -> None:
    process = DaemonProcess(tmp_path, look_s=60)  # without a hint it would come too late
    shutil.rmtree(kubelet.folder)
    with process as daemon:
        daemon.wait_for_log("does not exist")
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_stale_socket_at_start_is_not_fatal(kubelet: Kubelet, tmp_path: Path) -> None:
    process = DaemonProcess(tmp_path)
    kubelet.start()
    kubelet.stop(leave_socket=True)
    with process as daemon:
        daemon.wait_for_log("nobody answers")
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)


@pytest.mark.parametrize("leave_socket", [False, True], ids=["socket removed", "socket left behind"])
def test_a_restarted_kubelet_gets_the_devices_again(
    kubelet: Kubelet,
    daemon: DaemonProcess,
    leave_socket: bool,  # noqa: FBT001 - a table column
) -> None:
    kubelet.start()
    for _ in range(3):
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.stop(leave_socket=leave_socket)
        kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.is_running()


def test_an_assignment_after_a_restart_is_answered_like_before(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    first = kubelet.allocate(RESOURCE, 1, "a")
    kubelet.restart()
    kubelet.wait_for_devices(RESOURCE, 2)
    second = kubelet.allocate(RESOURCE, 1, "b")
    assert (first.device_ids, second.device_ids) == ((gpu(0).uuid,), (gpu(1).uuid,))
    daemon.wait_for_log("msg=allocated", 2)


def test_an_own_socket_that_was_removed_is_back_and_the_kubelet_notices_nothing(
    kubelet: Kubelet, daemon: DaemonProcess
) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    daemon.wait_for_log(REGISTERED)
    for _ in range(3):
        (kubelet.folder / SOCKET).unlink()
        wait_until(lambda: is_served(kubelet.folder), daemon.log)
        other = Endpoint(kubelet.folder, SOCKET)
        assert len(other.first_list()) == 2
        other.close()
    known = kubelet.registry.get(RESOURCE)
    assert known is not None
    assert (kubelet.registry.registrations, known.lists, known.is_watched) == (1, 1, True)


def is_served(folder: Path) -> bool:
    """Tell whether somebody listens: the name of a socket is there a moment before."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(f"/proc/self/fd/{descriptor}/{SOCKET}") == 0
    finally:
        os.close(descriptor)


def test_a_folder_that_is_removed_and_made_again_is_found(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, look_s=60) as daemon:  # without a hint it would come too late
        for _ in range(2):
            kubelet.start()
            kubelet.wait_for_devices(RESOURCE, 2)
            kubelet.stop()
            shutil.rmtree(kubelet.folder)
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)
        assert daemon.is_running()


def test_a_stream_that_ends_alone_leads_to_a_new_registration(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    kubelet.end_stream(RESOURCE)
    wait_for_registrations(kubelet, 2)
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.is_running()


def test_a_kubelet_that_never_opens_the_stream_is_registered_with_again(
    kubelet: Kubelet, daemon: DaemonProcess
) -> None:
    kubelet.set_mode(Mode.DEAF)
    kubelet.start()
    wait_for_registrations(kubelet, 2)
    kubelet.set_mode(Mode.SERVE)
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.is_running()


def test_a_kubelet_that_hung_up_before_it_opened_a_stream_is_registered_with_again(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    """As when the end of an older stream takes the new connection with it."""
    with DaemonProcess(tmp_path, first_stream_s=60):
        kubelet.set_mode(Mode.DROP)
        kubelet.start()
        wait_for_registrations(kubelet, 2)
        kubelet.set_mode(Mode.SERVE)
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_kubelet_that_notices_late_is_not_waited_for_on_its_older_connection(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    """It keeps that connection, on which nothing will ever happen; the newer one is gone without a stream."""
    with DaemonProcess(tmp_path, first_stream_s=3600):
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.notices_ends.clear()
        kubelet.set_mode(Mode.DROP)
        kubelet.end_stream(RESOURCE)
        wait_for_registrations(kubelet, 3)
        kubelet.set_mode(Mode.SERVE)
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_connection_that_a_late_kubelet_keeps_is_closed(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    """The end of the older stream takes the newer connection with it, so there is a third."""
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    assert daemon.connections(SOCKET) == 1
    for _ in range(3):
        count = kubelet.registry.registrations
        kubelet.notices_ends.clear()
        kubelet.end_stream(RESOURCE)
        wait_for_registrations(kubelet, count + 1)
        kubelet.notices_ends.set()
        wait_for_registrations(kubelet, count + 2)
        kubelet.wait_for_devices(RESOURCE, 2)
    wait_until(lambda: daemon.connections(SOCKET) == 1, lambda: f"{daemon.connections(SOCKET)} connections")


def test_a_stream_that_is_lost_before_the_registration_is_answered_is_noticed(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, first_stream_s=60) as daemon:
        kubelet.set_mode(Mode.LOSE)
        kubelet.start()
        wait_for_registrations(kubelet, 2)
        kubelet.set_mode(Mode.SERVE)
        kubelet.wait_for_devices(RESOURCE, 2)
        assert daemon.is_running()


def test_a_kubelet_that_hangs_in_register_is_given_up_and_tried_again(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, register_s=0.2) as daemon:
        kubelet.set_mode(Mode.HANG)
        kubelet.start()
        daemon.wait_for_log("no answer within")
        kubelet.set_mode(Mode.SERVE)
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_kubelet_that_hung_for_long_is_registered_with_when_it_goes_on(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, register_s=0.2, slow_s=0.1, backoff_max_s=60) as daemon:
        kubelet.set_mode(Mode.HANG)
        kubelet.start()
        daemon.wait_for_log("has not answered")
        time.sleep(2)  # many attempts: the pauses between them must not grow, and nothing is said twice
        assert daemon.log().count("topic=kubelet") + daemon.log().count("answer") == 1
        kubelet.set_mode(Mode.SERVE)
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_slow_kubelet_is_told_of_and_waited_for(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, register_s=60, slow_s=0.05) as daemon:
        kubelet.set_mode(Mode.HANG)
        kubelet.start()
        daemon.wait_for_log("has not answered the registration of nvidia.com/gpu yet")
        kubelet.set_mode(Mode.SERVE)
        kubelet.wait_for_devices(RESOURCE, 2)
        daemon.wait_for_log("resolved")


def test_another_kubelet_is_not_kept_waiting_by_one_that_hung(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, register_s=60) as daemon:
        kubelet.set_mode(Mode.HANG)
        kubelet.start()
        wait_until((kubelet.folder / SOCKET).exists, daemon.log)
        kubelet.stop(leave_socket=True)
        kubelet.set_mode(Mode.SERVE)
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_hung_kubelet_does_not_keep_the_daemon_from_stopping(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, register_s=60) as daemon:
        kubelet.set_mode(Mode.HANG)
        kubelet.start()
        wait_until((kubelet.folder / SOCKET).exists, daemon.log)
        assert daemon.stop() == 0


def test_a_refusal_is_repeated_at_a_bounded_pace_and_said_once(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, backoff_min_s=0.05, backoff_max_s=0.1) as daemon:
        kubelet.set_mode(Mode.REFUSE)
        kubelet.start()
        daemon.wait_for_log("is not supported")
        time.sleep(0.5)  # several attempts
        kubelet.set_mode(Mode.SERVE)
        kubelet.wait_for_devices(RESOURCE, 2)
        assert daemon.log().count("is not supported") == 1


def test_sigterm_withdraws_the_devices_before_the_stream_ends(kubelet: Kubelet, daemon: DaemonProcess) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    known = kubelet.registry.get(RESOURCE)
    assert known is not None
    assert daemon.stop() == 0
    wait_until(lambda: not known.is_watched, lambda: "the stream goes on")
    assert (kubelet.capacity(RESOURCE), known.lists) == (0, 2)
    assert [path.name for path in kubelet.folder.iterdir()] == ["kubelet.sock"]


def test_a_path_that_is_too_long_for_a_socket_works_all_the_same(tmp_path: Path) -> None:
    node = tmp_path / ("long-" * 20)
    node.mkdir()
    with DaemonProcess(node), Kubelet(node / "kubelet") as kubelet:
        assert len(str(kubelet.folder)) > 107
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.restart()
        kubelet.wait_for_devices(RESOURCE, 2)


@pytest.mark.parametrize("registration", ["auto", "watcher"])
def test_a_folder_that_is_removed_under_a_running_kubelet_is_made_again(tmp_path: Path, registration: str) -> None:
    process = DaemonProcess(tmp_path, look_s=0.1, hidden_s=0.1, register_s=60)
    process.configure(registration=registration)
    kubelet = Kubelet(tmp_path / "kubelet", watches_plugins=True)
    with kubelet, serving(process.kubelet_root, one_container("pod", RESOURCE)), process as daemon:
        kubelet.wait_for_devices(RESOURCE, 2)
        known = kubelet.registry.get(RESOURCE)
        shutil.rmtree(kubelet.folder)
        wait_until(kubelet.folder.is_dir, daemon.log)
        assert known is not None
        assert (known.is_watched, kubelet.registry.registrations) == (True, 1)

        for count in (2, 3):  # there is no kubelet.sock to register on: it has to find the daemon
            kubelet.end_stream(RESOURCE)
            wait_for_registrations(kubelet, count)
            kubelet.wait_for_devices(RESOURCE, 2)
        assert [path.name[:23] for path in kubelet.plugins_folder.iterdir()] == ["grapnel-nvidia.com_gpu~"]

        kubelet.restart()
        kubelet.wait_for_devices(RESOURCE, 2)
        assert "made again" in daemon.log()


def test_a_folder_of_a_kubelet_that_does_not_run_is_not_made(kubelet: Kubelet, tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, look_s=0.05, hidden_s=0.05) as daemon:
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.stop()
        daemon.wait_for_log("does not exist")  # it knows by then that no kubelet watches it
        shutil.rmtree(kubelet.folder)
        time.sleep(0.5)  # several looks
        assert list(process_folders(daemon)) == []


def process_folders(daemon: DaemonProcess) -> Iterator[str]:
    """Yield what is below the kubelet's root."""
    return (path.name for path in daemon.kubelet_root.iterdir())


def assert_nothing_is_left_behind(daemon: DaemonProcess, repeat: Callable[[int], None], times: int) -> None:
    """Compare descriptors and threads; a connection that is just being closed may still be counted."""
    repeat(20)
    before = daemon.descriptors(), daemon.threads()
    repeat(times)
    wait_until(
        lambda: daemon.descriptors() <= before[0] + 2 and daemon.threads() <= before[1] + 2,
        lambda: f"{before} became {daemon.descriptors(), daemon.threads()} after {times} times",
    )


def test_a_hundred_registrations_leave_nothing_behind(kubelet: Kubelet, tmp_path: Path) -> None:
    def register_again(times: int) -> None:
        for _ in range(times):
            count = kubelet.registry.registrations
            kubelet.end_stream(RESOURCE)
            wait_for_registrations(kubelet, count + 1)
            kubelet.wait_for_devices(RESOURCE, 2)

    with DaemonProcess(tmp_path, stream_gap_s=0.001, backoff_min_s=0.001, backoff_max_s=0.001) as daemon:
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)
        assert_nothing_is_left_behind(daemon, register_again, 100)


@pytest.mark.parametrize("same_connection", [True, False], ids=["on one connection", "each on its own connection"])
def test_hundreds_of_streams_leave_nothing_behind(
    kubelet: Kubelet,
    daemon: DaemonProcess,
    same_connection: bool,  # noqa: FBT001 - a table column
) -> None:
    kubelet.start()
    kubelet.wait_for_devices(RESOURCE, 2)
    shared = Endpoint(kubelet.folder, SOCKET)

    def open_streams(times: int) -> None:
        for _ in range(times):
            endpoint = shared if same_connection else Endpoint(kubelet.folder, SOCKET)
            assert len(endpoint.first_list()) == 2
            if endpoint is not shared:
                endpoint.close()

    assert_nothing_is_left_behind(daemon, open_streams, 300)
    shared.close()
