"""The daemon's memory and descriptors after many rounds of what a kubelet does rarely and a broken one all the time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import Kubelet
from lab.kubelet.endpoint import Endpoint
from tests.plugin.daemon_process import RESOURCE, DaemonProcess
from tests.plugin.fakes import gpu
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.functional  # whole daemons, one process a test

SOCKET = "grapnel-nvidia.com_gpu.sock"
ROUNDS = 500
REGISTRATIONS = 200
RESTARTS = 150
ALLOCATIONS = 6000  # until the history is full, and its file has been rewritten
LIMIT_KIB = 512


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as process, Kubelet(process.kubelet_root) as kubelet:
        kubelet.wait_for_devices(RESOURCE, 2)
        yield process


def private_kib(pid: int) -> int:
    """Return the memory that this process alone has (USS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def growth_kib(daemon: DaemonProcess, work: Callable[[], object], rounds: int = ROUNDS, connections: int = 1) -> int:
    """Do it often, then as often again: what the first time leaves is no leak, nor what is imported once meanwhile."""

    def work_often() -> None:
        for _ in range(rounds):
            work()
        open_now = partial(daemon.connections, SOCKET)
        wait_until(lambda: open_now() == connections, lambda: f"{open_now()} connections, not {connections}")

    work_often()
    grown_kib = descriptors = 0
    for _ in range(2):
        memory_kib, descriptors = private_kib(daemon.pid), daemon.descriptors()
        work_often()
        grown_kib = private_kib(daemon.pid) - memory_kib
        if grown_kib < LIMIT_KIB:
            break
    wait_until(lambda: daemon.descriptors() <= descriptors, lambda: f"{daemon.descriptors()} of {descriptors} are open")
    return grown_kib


def test_streams_opened_again_on_one_connection_cost_nothing(daemon: DaemonProcess) -> None:
    endpoint = Endpoint(daemon.kubelet_root / "device-plugins", SOCKET)
    assert growth_kib(daemon, endpoint.first_list, connections=2) < LIMIT_KIB
    endpoint.close()


def test_streams_on_connections_of_their_own_cost_nothing(daemon: DaemonProcess) -> None:
    def connect() -> None:
        endpoint = Endpoint(daemon.kubelet_root / "device-plugins", SOCKET)
        endpoint.first_list()
        endpoint.close()

    assert growth_kib(daemon, connect) < LIMIT_KIB


def test_registrations_after_streams_that_ended_cost_nothing(tmp_path: Path) -> None:
    made = DaemonProcess(tmp_path, stream_gap_s=0.001, backoff_min_s=0.001, backoff_max_s=0.001)
    with made as daemon, Kubelet(daemon.kubelet_root) as kubelet:

        def end_stream() -> None:
            count = kubelet.registry.registrations
            kubelet.end_stream(RESOURCE)
            assert kubelet.registry.wait_for(lambda: kubelet.registry.registrations > count, 60), daemon.log()
            kubelet.wait_for_devices(RESOURCE, 2)

        kubelet.wait_for_devices(RESOURCE, 2)
        assert growth_kib(daemon, end_stream, REGISTRATIONS) < LIMIT_KIB


def test_restarts_of_the_kubelet_cost_nothing(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon, Kubelet(daemon.kubelet_root) as kubelet:

        def restart() -> None:
            kubelet.restart()
            kubelet.wait_for_devices(RESOURCE, 2)

        kubelet.wait_for_devices(RESOURCE, 2)
        assert growth_kib(daemon, restart, RESTARTS) < LIMIT_KIB


@pytest.mark.long
def test_allocations_cost_nothing(daemon: DaemonProcess) -> None:
    endpoint = Endpoint(daemon.kubelet_root / "device-plugins", SOCKET)
    assert growth_kib(daemon, lambda: endpoint.allocate([gpu(0).uuid]), ALLOCATIONS, connections=2) < LIMIT_KIB
    endpoint.close()
