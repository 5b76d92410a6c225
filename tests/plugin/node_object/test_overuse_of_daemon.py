"""A whole daemon, a pod that uses more than its units, and an API server: told, and evicted where that was declared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.holdings.holders.cgroup import Place
from plugin.kubelet.pod_resources.attribution import PodContainer
from tests.plugin.kubelet.pod_resources.served import one_container, serving
from tests.plugin.node_object.api_server import NODE, ApiServer, write_kubeconfig
from tests.plugin.proc_folder import LogFolder, ProcFolder
from tests.plugin.released_node import UUIDS, Node, kubelet, node
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lab.kubelet import Kubelet

__all__ = ["kubelet", "node"]  # fixtures

pytestmark = pytest.mark.functional  # whole daemons, one process a test

RESOURCE, GIB = "aliyun.com/gpu-mem", 1 << 30
UID = "0f3b7a52-9d1e-4c60-8a77-3f1d5e6b9a11"
PLACE = Place(None, UID, f"{7:064x}")


EVICTED = {"evict": [("/api/v1/namespaces/default/pods/greedy/eviction", UID)], "report": []}


@pytest.mark.parametrize("overuse", ["evict", "report"])
def test_a_pod_over_its_share_is_told_and_evicted_where_that_was_declared(
    kubelet: Kubelet, node: Node, server: ApiServer, tmp_path: Path, overuse: str
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubelet.conf", server)
    declared = {"memoryUnits": [{}], "memoryOveruse": overuse, "overuseGraceSeconds": 10}
    node.configure(kubernetesApi=str(kubeconfig), nodeName=NODE, **declared)
    LogFolder(node.node / "metrics/log").add(PLACE, PodContainer("default", "greedy", "main"))
    ProcFolder(node.node / "metrics/proc").add(1, PLACE)
    (node.node / "processes.json").write_text(json.dumps([[], [[1, 3 * GIB, 40]]]))
    with node, serving(kubelet.folder.parent, one_container("greedy", RESOURCE, f"{UUIDS[1]}/0", f"{UUIDS[1]}/1")):
        wait_until(lambda: "uses more of a GPU's memory" in node.log(), node.log)
        if EVICTED[overuse]:
            wait_until(lambda: bool(server.state.evicted), node.log)
            wait_until(lambda: "GPUMemoryPodEvicted" in reasons(server), node.log)
        wait_until(lambda: "GPUMemoryOverShare" in reasons(server), node.log)
        assert node.stop() == 0
    assert '"over share"' in (node.state / "history.jsonl").read_text()
    assert server.state.evicted == EVICTED[overuse]
    assert "pod=default/greedy" in node.log()
    assert "bug" not in node.log()


def reasons(server: ApiServer) -> set[str]:
    return {event["reason"] for event in tuple(server.state.events.values())}
