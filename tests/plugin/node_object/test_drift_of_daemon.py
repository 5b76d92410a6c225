"""A whole daemon beside the timer's file: what was found is on the page and on the Node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from plugin.drift.model import Difference, DriftKind
from plugin.drift.result import Result, render_result
from tests.plugin.daemon.test_metrics_of_daemon import port, scrape
from tests.plugin.daemon_process import RESOURCE
from tests.plugin.node_object.api_server import NODE, ApiServer, write_kubeconfig
from tests.plugin.released_node import Node, kubelet, node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lab.kubelet import Kubelet

__all__ = ["kubelet", "node", "port"]  # fixtures

pytestmark = pytest.mark.functional  # whole daemons, one process a test

HOLD = Difference(DriftKind.HOLD, "libcuda1", "not held", "held", None, "grapnel apply n1")


def leave(node: Node, result: Result) -> None:
    """Do what the timer does."""
    folder = node.node / "drift"
    folder.mkdir(exist_ok=True)
    beside = folder / ".result.json.new"
    beside.write_text(render_result(result))
    beside.replace(folder / "result.json")


def test_what_the_timer_finds_is_on_the_page_and_on_the_node(
    kubelet: Kubelet, node: Node, server: ApiServer, port: int, tmp_path: Path
) -> None:
    def status() -> str:
        row = server.state.conditions.get("GPUNodeAsDeclared")
        return "" if row is None else row["status"]

    kubeconfig = write_kubeconfig(tmp_path / "kubelet.conf", server)
    node.configure(metricsAddress=f"127.0.0.1:{port}", kubernetesApi=str(kubeconfig), nodeName=NODE)
    at = int(time.time())
    with node:
        kubelet.wait_for_devices(RESOURCE, 2)
        wait_until(lambda: "GPUsHealthy" in server.state.conditions, node.log)
        assert (status(), scrape(port).of("grapnel_drift_up")) == ("", {})
        leave(node, Result(at, (HOLD,)))
        wait_until(lambda: status() == "False", node.log)
        page = scrape(port)
        assert page.of("grapnel_drift_differences")[(("kind", "hold"),)] == 1
        assert page.of("grapnel_drift_timestamp_seconds") == {(): at}
        assert "grapnel apply n1" in server.state.conditions["GPUNodeAsDeclared"]["message"]
        leave(node, Result(at + 1, reason="a driver change has begun and not ended"))
        wait_until(lambda: status() == "Unknown", node.log)
        assert scrape(port).of("grapnel_drift_up") == {(): 0}
        leave(node, Result(at + 2))
        wait_until(lambda: status() == "True", node.log)
        assert node.stop() == 0
