"""Whole daemons and an API server: off means nothing of it, on means that what happens to GPUs is on the Node."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.daemon import test_whole_daemon
from tests.plugin.fakes import VERSION, gpu, gpus, write_driver
from tests.plugin.node_object.api_server import NODE, ApiServer, Failure, write_kubeconfig
from tests.plugin.released_node import UUIDS, Node, kubelet, node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from lab.kubelet import Kubelet

__all__ = ["kubelet", "node"]  # fixtures

pytestmark = pytest.mark.functional  # whole daemons, one process a test


def wait_for(node: Node, server: ApiServer, **wanted: str) -> dict[str, Any]:
    """Wait for conditions, by type; returns what the Node has."""

    def found() -> dict[str, str]:
        return {kind: row["status"] for kind, row in tuple(server.state.conditions.items())}

    wait_until(lambda: wanted.items() <= found().items(), lambda: f"{server.state}\n{node.log()}")
    return server.state.conditions


def reasons(server: ApiServer) -> list[str]:
    return sorted(event["reason"] for event in tuple(server.state.events.values()))


def test_health_and_releases_are_shown_on_the_node(
    kubelet: Kubelet, node: Node, server: ApiServer, tmp_path: Path
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubelet.conf", server)
    with node:
        kubelet.wait_for_devices("nvidia.com/gpu", 2)
        node.configure(kubernetesApi=str(kubeconfig), nodeName=NODE)
        node.signal(signal.SIGHUP)
        wait_for(node, server, GPUsHealthy="True", GPUDriverReady="True")
        wait_until(lambda: server.state.labels.get("nvidia.com/gpu.count") == ("2", "grapnel-node"), node.log)
        write_driver(node.driver, Snapshot(VERSION, (gpu(0),), (LostGpu(1, UUIDS[1], "gpu is lost"),)))
        assert UUIDS[1] in wait_for(node, server, GPUsHealthy="False")["GPUsHealthy"]["message"]
        write_driver(node.driver, Snapshot(VERSION, gpus(2)))
        wait_for(node, server, GPUsHealthy="True")
        node.verb("release")
        assert wait_for(node, server, GPUsHealthy="Unknown", GPUDriverReady="Unknown")
        node.verb("resume")
        wait_for(node, server, GPUsHealthy="True", GPUDriverReady="True")
        write_driver(node.driver, None)
        wait_for(node, server, GPUsHealthy="Unknown", GPUDriverReady="False")
        assert node.stop() == 0
    happened = {"GPULost", "GPUErrorResolved", "GPUHealthy", "GPUsReleased", "GPUsResumed", "GPUDriverLost"}
    assert happened <= set(reasons(server))
    assert "bug" not in node.log()


def test_an_api_that_does_not_answer_costs_no_gpu(
    kubelet: Kubelet, node: Node, server: ApiServer, tmp_path: Path
) -> None:
    answered = threading.Event()
    server.state.standing["/"] = Failure(until=answered)
    node.configure(kubernetesApi=str(write_kubeconfig(tmp_path / "config", server)), nodeName=NODE)
    with node:
        wait_until(lambda: server.count("GET") == 1, node.log)
        kubelet.wait_for_devices("nvidia.com/gpu", 2)
        write_driver(node.driver, Snapshot(VERSION, (gpu(0),), (LostGpu(1, UUIDS[1], "gpu is lost"),)))
        kubelet.wait_for_devices("nvidia.com/gpu", 1)
        assert node.stop() == 0
    answered.set()
    assert "the Kubernetes API does not answer" in node.log()


def test_openssl_is_loaded_where_it_is_on_and_nowhere_else(tmp_path: Path, server: ApiServer) -> None:
    shipped = test_whole_daemon.Node(tmp_path, 1)
    config = tmp_path / "node.json"
    with shipped.running() as process:
        wait_until(lambda: "msg=driver" in shipped.log(), shipped.log)
        maps = Path(f"/proc/{process.pid}/maps")
        assert "libssl" not in maps.read_text()
        keys = {"kubernetesApi": str(write_kubeconfig(tmp_path / "config", server)), "nodeName": NODE}
        config.write_text(json.dumps({**json.loads(config.read_text()), **keys}))
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "GPUsHealthy" in server.state.conditions, shipped.log)
        assert "libssl" in maps.read_text()
