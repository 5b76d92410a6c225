"""The page of whole daemons, as processes: pods, releases, lost GPUs, another address."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from typing import TYPE_CHECKING

import pytest

from plugin.driver.snapshot import LostGpu, Snapshot
from plugin.holdings.holders.cgroup import Place
from plugin.kubelet.pod_resources.attribution import PodContainer
from tests.plugin.daemon_process import RESOURCE
from tests.plugin.fakes import VERSION, gpu, write_driver
from tests.plugin.kubelet.pod_resources.served import one_container, serving
from tests.plugin.metrics.reading import Page, read_page
from tests.plugin.proc_folder import LogFolder, ProcFolder
from tests.plugin.released_node import UUIDS, Node, hang_driver, kubelet, node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from lab.kubelet import Kubelet

__all__ = ["kubelet", "node"]  # fixtures


pytestmark = pytest.mark.functional  # whole daemons, one process a test


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def port(node: Node) -> int:
    number = free_port()
    node.configure(metricsAddress=f"127.0.0.1:{number}")
    return number


def scrape(port: int) -> Page:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return read_page(answer.read())


def is_served(port: int) -> bool:
    try:
        scrape(port)
    except OSError:  # refused, or hung up on while the address changes
        return False
    return True


def pods_of(page: Page) -> dict[str, str | None]:
    labels = [dict(labels) for labels in page.of("DCGM_FI_DEV_GPU_UTIL")]
    return {each["UUID"]: each.get("pod") for each in labels}


def test_a_page_has_gpus_pods_and_what_the_kubelet_asked(kubelet: Kubelet, node: Node, port: int) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        kubelet.allocate(RESOURCE, 1, "train-0", device_ids=[UUIDS[1]])
        with serving(kubelet.folder.parent, one_container("train-0", RESOURCE, UUIDS[1])):
            page = scrape(port)
    assert pods_of(page) == {UUIDS[0]: None, UUIDS[1]: "train-0"}
    assert list(page.of("container_accelerator_duty_cycle").values()) == [11]
    assert page.of("grapnel_device_allocations_total") == {(("UUID", UUIDS[1]),): 1}
    assert page.of("grapnel_kubelet_registrations_total") == {(("resource", RESOURCE),): 1}
    assert page.of("grapnel_rpc_duration_seconds_count")[("method", "Allocate"), ("code", "OK")] == 1
    for name in ("driver_up", "kubelet_registered", "telemetry_up", "pod_resources_up"):
        assert page.value(f"grapnel_{name}") == 1


def test_a_gpu_that_two_pods_share_is_told_by_their_processes(kubelet: Kubelet, node: Node, port: int) -> None:
    logs, proc = LogFolder(node.node / "metrics/log"), ProcFolder(node.node / "metrics/proc")
    for pid, pod in ((1, "train-0"), (2, "peek")):
        place = Place(None, f"0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a1{pid}", f"{pid:064x}")
        logs.add(place, PodContainer("default", pod, "main"))
        proc.add(pid, place)
    (node.node / "processes.json").write_text(json.dumps([[], [[1, 600 << 20, 40], [2, 5 << 20, 0], [3, 1, 0]]]))
    with node, serving(kubelet.folder.parent, one_container("train-0", RESOURCE, UUIDS[1])):
        kubelet.wait_for_devices(RESOURCE, 2)
        page = scrape(port)
    used = {dict(labels).get("pod"): value for labels, value in page.of("DCGM_FI_DEV_FB_USED").items()}
    assert used == {None: 2048, "train-0": 600, "peek": 5}, "GPU 1; GPU 0 without a pod is before it on the page"
    busy = {dict(labels)["pod"]: value for labels, value in page.of("container_accelerator_duty_cycle").items()}
    assert busy == {"train-0": 40, "peek": 0}
    assert [dict(labels)["pod"] for labels in page.of("grapnel_gpu_ungiven_processes")] == ["peek"]
    owners = {dict(labels)["owner"]: value for labels, value in page.of("grapnel_gpu_processes").items() if value}
    assert owners == {"pod": 2, "unknown": 1}


def test_a_refused_call_is_counted_by_its_status(kubelet: Kubelet, node: Node, port: int) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        with pytest.raises(Exception, match="is not one"):
            kubelet._endpoints[RESOURCE].allocate(["GPU-x"])
        page = scrape(port)
    counted = page.of("grapnel_rpc_duration_seconds_count")
    assert counted[("method", "Allocate"), ("code", "INVALID_ARGUMENT")] == 1
    assert not page.of("grapnel_device_allocations_total")


def test_a_configuration_that_is_refused_is_told_until_it_is_taken_in(kubelet: Kubelet, node: Node, port: int) -> None:
    address = {"metricsAddress": f"127.0.0.1:{port}"}
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        assert scrape(port).value("grapnel_config_up") == 1
        node.configure(resuorce="example.com/gpu", **address)
        node.signal(signal.SIGHUP)
        wait_until(lambda: scrape(port).value("grapnel_config_up") == 0, node.log)
        node.configure(**address)
        node.signal(signal.SIGHUP)
        wait_until(lambda: scrape(port).value("grapnel_config_up") == 1, node.log)


def test_a_kubelet_that_restarts_is_a_registration_more(kubelet: Kubelet, node: Node, port: int) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        wait_for_registrations(port, 1, node)
        kubelet.restart()
        wait_for_registrations(port, 2, node)


def wait_for_registrations(port: int, count: int, node: Node) -> None:
    """They are counted when the kubelet has answered: the list may come first."""
    registrations = {(("resource", RESOURCE),): count}
    wait_until(lambda: scrape(port).of("grapnel_kubelet_registrations_total") == registrations, node.log)


def test_a_released_node_measures_nothing_and_a_resumed_one_again(kubelet: Kubelet, node: Node, port: int) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        assert len(scrape(port).of("DCGM_FI_DEV_POWER_USAGE")) == 2
        node.verb("release")
        page = scrape(port)
        assert not page.of("DCGM_FI_DEV_POWER_USAGE")
        assert (page.value("grapnel_released"), page.value("grapnel_driver_up")) == (1, 0)
        assert list(page.of("grapnel_device_healthy").values()) == [0, 0]
        node.verb("resume")
        wait_until(lambda: len(scrape(port).of("DCGM_FI_DEV_POWER_USAGE")) == 2, node.log)


def test_a_lost_gpu_is_unhealthy_and_the_change_is_counted(kubelet: Kubelet, node: Node, port: int) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        write_driver(node.driver, Snapshot(VERSION, (gpu(0),), (LostGpu(1, UUIDS[1], "gpu is lost"),)))
        kubelet.wait_for_devices(RESOURCE, 1)
        page = scrape(port)
    assert list(page.of("grapnel_device_healthy").values()) == [1, 0]
    assert page.of("grapnel_health_transitions_total") == {(("UUID", UUIDS[1]), ("to", "unhealthy")): 1}


def test_a_driver_that_hangs_costs_its_rows_and_not_the_page(kubelet: Kubelet, node: Node, port: int) -> None:
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        pipe = hang_driver(node)
        wait_until(lambda: scrape(port).value("grapnel_telemetry_up") == 0, node.log)
        kubelet.allocate(RESOURCE, 1, "meanwhile")
        page = scrape(port)
        assert not page.of("DCGM_FI_DEV_POWER_USAGE")
        assert sum(page.of("grapnel_device_allocations_total").values()) == 1
        os.close(pipe)


def test_metrics_are_off_until_an_address_is_named_and_follow_it(kubelet: Kubelet, node: Node) -> None:
    first, second = free_port(), free_port()
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        assert "msg=metrics" not in node.log()
        for number, before in ((first, second), (second, first)):
            node.configure(metricsAddress=f"127.0.0.1:{number}")
            node.signal(signal.SIGHUP)
            wait_until(lambda number=number: is_served(number), node.log)  # type: ignore[misc] # bound at once
            assert not is_served(before)
        node.configure()
        node.signal(signal.SIGHUP)
        wait_until(lambda: not is_served(second), node.log)
        assert len(kubelet.healthy(RESOURCE)) == 2


def test_an_address_that_is_taken_costs_the_metrics_and_nothing_else(kubelet: Kubelet, node: Node) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        node.configure(metricsAddress=f"127.0.0.1:{taken.getsockname()[1]}")
        with node:
            kubelet.wait_for_devices(RESOURCE, 2)
            node.wait_for_log("cannot be served")
            assert "address already in use" in node.log()


POOL = 4  # asyncio makes a thread for this and that, up to its limit: not one for each scrape


def test_many_scrapes_and_many_who_hang_up_leave_nothing_behind(kubelet: Kubelet, node: Node, port: int) -> None:
    def scrape_often() -> None:
        for _ in range(100):
            scrape(port)
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\n")

    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        scrape_often()
        before = (node.descriptors(), node.threads())
        scrape_often()
        wait_until(lambda: node.descriptors() <= before[0], lambda: f"{before}, now {node.descriptors()}")
        assert node.threads() <= before[1] + POOL
