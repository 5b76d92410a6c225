"""Release and resume of whole daemons, as processes: kubelets, drivers and restarts in between."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from lab.kubelet import AllocationRefused, Kubelet, Mode
from lab.podresources.proto.api_pb2 import AllocatableResourcesResponse
from lab.podresources.server import serving
from plugin.changes.driver_change.release.record import Release, RememberedGpu
from plugin.changes.driver_change.release.store import FILE_NAME, read_release, write_release
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.daemon.test_daemon import receive
from tests.plugin.daemon_process import RESOURCE
from tests.plugin.fakes import VERSION, gpu, gpus, write_driver
from tests.plugin.released_node import ENVIRONMENT, NEW, UUIDS, Node, hang_driver, kubelet, made, node
from tests.waiting import wait_until

__all__ = ["kubelet", "node"]  # fixtures


pytestmark = pytest.mark.functional  # whole daemons, one process a test


def test_a_released_node_keeps_its_capacity_and_gives_nothing_away(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        before = kubelet.allocate(RESOURCE, 1, "running")
        assert node.verb("release") == {
            "released": True,
            "since": json.loads((node.state / FILE_NAME).read_text())["since"],
            "holders": [],
            "problems": [],
        }
        assert (kubelet.healthy(RESOURCE), kubelet.capacity(RESOURCE)) == ([], 2)
        with pytest.raises(AllocationRefused):
            kubelet.allocate(RESOURCE, 1, "late")
        assert node.verb("resume") == {"offered": 2, "problems": []}
        assert kubelet.healthy(RESOURCE) == UUIDS
        assert kubelet.assignments["running"] == before


def test_a_release_is_answered_after_the_kubelet_has_taken_the_list(kubelet: Kubelet, node: Node) -> None:
    asked = 0

    def allocatable() -> bytes:
        """Be behind twice."""
        nonlocal asked
        asked += 1
        return allocatable_response(UUIDS if asked <= 2 else [])

    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        with serving(kubelet.folder.parent, bytes, allocatable):
            assert node.verb("release")["problems"] == []
    assert asked == 3


def test_a_kubelet_that_does_not_take_the_list_is_told_and_holds_no_release_up(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        with serving(kubelet.folder.parent, bytes, lambda: allocatable_response(UUIDS)):
            answer = node.verb("release", timeout_s=1)
        assert answer["released"]
        assert "the kubelet has not taken the list without healthy devices" in answer["problems"][0]


def allocatable_response(device_ids: list[str]) -> bytes:
    answer = AllocatableResourcesResponse()
    answer.devices.add(resource_name=RESOURCE, device_ids=device_ids)
    encoded: bytes = answer.SerializeToString()
    return encoded


def test_a_pod_that_was_placed_before_the_release_is_refused_with_the_reason(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.verb("release")
        endpoint = kubelet._endpoints[RESOURCE]
        with pytest.raises(Exception, match="is not healthy: released since"):
            endpoint.allocate(UUIDS[:1])


def test_what_is_remembered_is_what_was_there(kubelet: Kubelet, node: Node) -> None:
    write_driver(node.driver, Snapshot(VERSION, gpus(2)))
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        write_driver(node.driver, Snapshot(VERSION, (gpu(0),), (LostGpu(1, gpu(1).uuid, "gpu is lost"),)))
        kubelet.wait_for_devices(RESOURCE, 1)
        node.verb("release")
    release = read_release(node.state)
    assert release is not None
    assert release.driver_version == VERSION
    assert release.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert [(each.index, each.uuid, each.pci_address, each.unhealthy) for each in release.gpus] == [
        (0, gpu(0).uuid, gpu(0).pci_address, ""),
        (1, gpu(1).uuid, gpu(1).pci_address, "gpu is lost"),
    ]


def test_release_and_resume_may_be_said_twice(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        assert node.verb("resume") == {"offered": 2, "problems": []}
        first = node.verb("release")
        written = (node.state / FILE_NAME).read_bytes()
        assert node.verb("release") == first
        assert (node.state / FILE_NAME).read_bytes() == written
        assert node.verb("resume") == node.verb("resume") == {"offered": 2, "problems": []}
        assert node.log().count("msg=resumed") == 1


def test_many_at_once_end_in_what_the_file_says(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        verbs = ["release", "resume", "release", "release", "resume", "release"]
        running = [
            subprocess.Popen(node.command(verb, 30), env=ENVIRONMENT, stdout=subprocess.DEVNULL) for verb in verbs
        ]
        assert [each.wait(60) for each in running] == [0] * 6
        is_released = read_release(node.state) is not None
        wait_until(lambda: len(kubelet.healthy(RESOURCE)) == (0 if is_released else 2), node.log)
        assert kubelet.capacity(RESOURCE) == 2


def test_another_driver_after_the_release_is_the_one_that_is_offered(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.verb("release")
        write_driver(node.driver, None)
        time.sleep(0.5)
        assert "driver not loaded" not in node.log(), "a released daemon asks nobody"
        write_driver(node.driver, Snapshot(NEW, gpus(2)))
        assert node.verb("resume")["offered"] == 2
        node.wait_for_log(f"version={NEW}")
        assert kubelet.healthy(RESOURCE) == UUIDS


def test_a_driver_that_is_not_back_is_told_and_offered_when_it_is(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.verb("release")
        write_driver(node.driver, None)
        answer = node.verb("resume", code=1)
        assert answer == {"offered": 0, "problems": ["nvml does not answer: driver not loaded"]}
        assert kubelet.capacity(RESOURCE) == 2
        write_driver(node.driver, Snapshot(NEW, gpus(2)))
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_gpu_that_is_missing_afterwards_stays_in_the_capacity(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.verb("release")
        write_driver(node.driver, Snapshot(VERSION, gpus(1)))
        assert node.verb("resume")["offered"] == 1
        assert kubelet.capacity(RESOURCE) == 2


def test_a_daemon_that_starts_while_released_shows_what_is_remembered(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.verb("release")
        assert node.stop() == 0
    write_driver(node.driver, None)
    with node.start():
        node.wait_for_log("msg=registered", times=2)
        assert node.verb("release")["problems"] == []
        assert (kubelet.healthy(RESOURCE), kubelet.capacity(RESOURCE)) == ([], 2)
        write_driver(node.driver, Snapshot(VERSION, gpus(2)))
        assert node.verb("resume") == {"offered": 2, "problems": []}
        assert kubelet.healthy(RESOURCE) == UUIDS


def test_a_reboot_changes_nothing(kubelet: Kubelet, node: Node) -> None:
    remembered = RememberedGpu(0, gpu(0).uuid, 0, gpu(0).pci_address)
    node.state.mkdir()
    write_release(node.state, Release("2026-09-01T10:00:00Z", "another-boot", VERSION, (remembered,)))
    with node:
        wait_until(lambda: kubelet.capacity(RESOURCE) == 1, node.log)
        assert kubelet.healthy(RESOURCE) == []
        node.wait_for_log("released since 2026-09-01T10:00:00Z")
        assert node.verb("release")["since"] == "2026-09-01T10:00:00Z"


def test_without_a_daemon_the_file_is_enough(kubelet: Kubelet, node: Node) -> None:
    write_release(made(node.state), Release("2026-09-01T10:00:00Z"))
    assert "the daemon does not run" in node.verb("release")["problems"]
    answer = node.verb("resume")
    assert answer == {"offered": 0, "problems": ["the daemon does not run: GPUs are offered when it starts"]}
    assert node.verb("resume") == answer
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_damaged_file_keeps_the_node_released_until_it_is_resumed(kubelet: Kubelet, node: Node) -> None:
    (made(node.state) / FILE_NAME).write_bytes(b"\0" * 100)
    with node:
        node.wait_for_log(f"released, as {node.state / FILE_NAME} cannot be understood")
        assert kubelet.capacity(RESOURCE) == 0
        assert node.verb("resume") == {"offered": 2, "problems": []}
        assert kubelet.healthy(RESOURCE) == UUIDS


def test_a_release_over_a_damaged_file_repairs_it_with_what_the_daemon_knows(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        (made(node.state) / FILE_NAME).write_text("{")
        kubelet.wait_for_devices(RESOURCE, 0)
        node.verb("release")
        release = read_release(node.state)
        assert release is not None
        assert [(each.uuid, each.unhealthy) for each in release.gpus] == [(uuid, "") for uuid in UUIDS]


def test_a_driver_that_hangs_is_told_in_time_and_let_go_when_it_answers(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        silent_writer = hang_driver(node)
        answer = node.verb("release", timeout_s=1)  # the driver answers only at the end of this test
        assert answer["problems"] == ["the driver does not answer: its session is still open"]
        assert kubelet.healthy(RESOURCE) == []
        write_driver(node.driver, Snapshot(VERSION, gpus(2)))
        assert node.verb("resume", timeout_s=1, code=1)["problems"] == ["the driver does not answer"]
        assert kubelet.healthy(RESOURCE) == []
        assert node.verb("release", timeout_s=1)["problems"] != []
        os.write(silent_writer, json.dumps({"driver_version": VERSION, "gpus": [], "lost": []}).encode())
        os.close(silent_writer)
        assert node.verb("release")["problems"] == []
        assert node.verb("resume") == {"offered": 2, "problems": []}


def test_a_kubelet_that_restarts_or_is_absent_changes_nothing(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.stop()
        assert node.verb("release")["problems"] == []
        kubelet.start()
        wait_until(lambda: kubelet.capacity(RESOURCE) == 2, node.log)
        assert kubelet.healthy(RESOURCE) == []
        kubelet.stop()
        answer = node.verb("resume")
        assert answer == {"offered": 2, "problems": ["no kubelet watches the list: it gets it when it registers"]}
        kubelet.start()
        kubelet.wait_for_devices(RESOURCE, 2)


def test_a_kubelet_that_hangs_does_not_keep_the_release_waiting(kubelet: Kubelet, node: Node) -> None:
    kubelet.set_mode(Mode.HANG)
    with node:
        node.wait_for_log("msg=driver")
        assert node.verb("release")["problems"] == []
        kubelet.set_mode(Mode.SERVE)
        wait_until(lambda: kubelet.capacity(RESOURCE) == 2, node.log)
        assert kubelet.healthy(RESOURCE) == []


def test_sighup_while_released_moves_the_resource_and_nothing_else(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.verb("release")
        node.configure(resource="example.com/gpu")
        node.signal(signal.SIGHUP)
        wait_until(lambda: kubelet.capacity("example.com/gpu") == 2, node.log)
        assert kubelet.healthy("example.com/gpu") == []
        assert node.verb("resume")["offered"] == 2
        assert kubelet.healthy("example.com/gpu") == UUIDS


def test_systemd_and_the_journal_say_so(kubelet: Kubelet, node: Node, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(20)
        systemd.bind(str(tmp_path / "notify"))
        with node.start(notify_socket=str(tmp_path / "notify")):
            assert receive(systemd) == "READY=1\nSTATUS=registered with the kubelet"
            since = node.verb("release")["since"]
            assert receive(systemd) == f"STATUS=released since {since}: no GPU is offered"
            node.verb("resume")
            assert receive(systemd) == "STATUS=registered with the kubelet"
            node.verb("release")
            assert node.stop() == 0
            receive(systemd)
            assert receive(systemd) == "STOPPING=1"
        assert node.log().count(f'level=warning msg="released since {since}"') >= 1
        assert node.log().count("msg=resumed") == 1
        with node.start(notify_socket=str(tmp_path / "notify")):
            assert receive(systemd).startswith("READY=1\nSTATUS=released since ")
    assert kubelet.healthy(RESOURCE) == []


def test_descriptors_and_threads_do_not_grow(kubelet: Kubelet, node: Node) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        node.verb("release")
        node.verb("resume")
        wait_until((node.node / "state/history.jsonl").exists, node.log)  # its thread is there
        before = (node.descriptors(), node.threads())
        rounds = 8
        for _ in range(rounds):
            node.verb("release")
            node.verb("resume")
        wait_until(lambda: node.descriptors() <= before[0], lambda: f"{node.descriptors()} descriptors after {before}")
        # asyncio's pool of threads grows by one whenever more of its calls meet than before, and keeps it
        assert node.threads() < before[1] + rounds


def test_a_socket_that_cannot_be_served_costs_only_seconds(kubelet: Kubelet, node: Node) -> None:
    (node.node / "run").write_text("in the way")
    with node:
        node.wait_for_log("run/node.sock cannot be served: file exists")
        kubelet.wait_for_devices(RESOURCE, 2)
        assert "the daemon does not run" in node.verb("release")["problems"]
        kubelet.wait_for_devices(RESOURCE, 0)
