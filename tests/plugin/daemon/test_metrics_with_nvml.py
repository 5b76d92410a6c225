"""The page of the daemon as it is shipped: command line, NVML's library, real processes of this machine."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.nvml import models, state
from lab.nvml.machine import MIB, Activity, Architecture, Process
from plugin.holdings.holders.cgroup import parse_cgroup
from plugin.holdings.holders.processes import ProcessTable
from tests.plugin.daemon.test_metrics_of_daemon import free_port, is_served
from tests.plugin.daemon.test_whole_daemon import Node
from tests.plugin.metrics.reading import Page, read_page
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional  # whole daemons, one process a test


class ScrapedNode(Node):
    """A node of two GPUs that serves its page."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 2)
        self.port = free_port()
        path = folder / "node.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "metricsAddress": f"127.0.0.1:{self.port}"}))

    def scrape(self) -> Page:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as answer:
            return read_page(answer.read())

    def wait_for_measurements(self) -> None:
        wait_until(lambda: is_served(self.port) and self.scrape().value("grapnel_telemetry_up") == 1, self.log)


@pytest.fixture
def node(tmp_path: Path) -> ScrapedNode:
    return ScrapedNode(tmp_path)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as started:
        time.sleep(0.03)  # a process is attributed from its second tick of 10 ms on
        yield started
        started.kill()


def expected_owner(pid: int) -> str:
    """Return what is so on this machine, which may itself be a container or a pod."""
    place = parse_cgroup(Path(f"/proc/{pid}/cgroup").read_text())
    return "host" if ProcessTable(Path("/proc")).has_the_machines_ids() and place.pod_uid is None else "unknown"


def test_a_process_of_this_machine_is_counted_where_it_belongs(
    node: ScrapedNode, process: subprocess.Popen[bytes]
) -> None:
    used = (Process(process.pid, 600 * MIB, sm_utilization=7),)
    state.update(node.library, lambda machine: machine.with_gpu(1, processes=used))
    with node.running():
        node.wait_for_measurements()
        page = node.scrape()
    counts = {
        (each["gpu"], each["owner"]): value
        for each, value in ((dict(labels), value) for labels, value in page.of("grapnel_gpu_processes").items())
        if value
    }
    assert counts == {("1", expected_owner(process.pid)): 1}


def test_a_gpu_that_is_cut_while_the_daemon_runs_has_its_instances_on_the_next_page(node: ScrapedNode) -> None:
    with node.running():
        node.wait_for_measurements()
        assert all("GPU_I_ID" not in dict(labels) for labels in node.scrape().of("DCGM_FI_DEV_FB_USED"))
        state.update(node.library, lambda machine: models.with_mig(machine, 1, ["1g.5gb", "2g.10gb"]))
        wait_until(lambda: len(node.scrape().of("DCGM_FI_DEV_FB_USED")) == 4, node.log)
        page = node.scrape()
    rows = [dict(labels) for labels in page.of("DCGM_FI_DEV_FB_FREE")]
    assert [each.get("GPU_I_PROFILE") for each in rows] == [None, None, "1g.5gb", "2g.10gb"]
    assert len({each["UUID"] for each in rows[1:]}) == 1, "the UUID is the whole GPU's"


def test_gpus_with_gpm_are_profiled_also_after_a_release(node: ScrapedNode) -> None:
    busy = {"architecture": Architecture.HOPPER, "activity": Activity(tensor=6125), "pcie_sent_kib_s": 3}
    state.update(node.library, lambda machine: machine.with_gpu(0, **busy).with_gpu(1, **busy))
    state.update(node.library, lambda machine: models.with_mig(machine, 1, ["1g.5gb"]))
    rows = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": [0.6125, 0.6125, 0], "DCGM_FI_PROF_PCIE_TX_BYTES": [3072, 3072]}

    def is_profiled() -> bool:
        page = node.scrape()
        return {name: list(page.of(name).values()) for name in rows} == rows

    with node.running():
        node.wait_for_measurements()
        wait_until(is_profiled, node.log)
        assert node.run("release").returncode in {0, 3}  # 3: somebody on this machine cannot be looked into
        wait_until(lambda: not node.scrape().of("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), node.log)
        assert node.run("resume").returncode == 0
        wait_until(is_profiled, node.log)
