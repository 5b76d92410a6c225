"""The whole stage: three booted nodes with three engines under a real control plane, and nothing left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import Cluster, ClusterError, ClusterNode, ClusterSpec, StartError
from lab.images import reference
from lab.machine.errors import CommandError
from lab.nodes.cgroup import hierarchies
from lab.nodes.network import bridge_owners

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nodes
WAIT = "--timeout=60s"
SERVE = "trap 'exit 0' TERM; while true; do sleep 0.2; done"
SMALL = ClusterSpec((ClusterNode("n1", gpus=0, driver_module=""),))
UP = """
import sys
from lab.cluster import Cluster, ClusterNode, ClusterSpec
Cluster(sys.argv[1]).up(ClusterSpec((ClusterNode("n1", gpus=0, driver_module=""),)))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        made = Cluster(f"c{os.getpid()}")
        try:
            made.up()
            yield made
        finally:
            made.down()


def traces(cluster: Cluster) -> list[str]:
    """Return what of a cluster is still on the machine."""
    name = cluster.site.bridge_name
    found = [str(path) for hierarchy in hierarchies() for path in hierarchy.glob(f"{name}.*")]
    found += [link for link in bridge_owners() if link == name]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(cluster.site.folder) in line]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        if str(cluster.site.folder).encode() in command.read_bytes():
            found.append(f"{command}: {command.read_bytes().decode()}")
    return found + [str(path) for path in (cluster.site.folder,) if path.exists()]


def pod(name: str, node: str, *, host_network: bool = False) -> dict[str, Any]:
    container = {"name": "c", "image": reference("gpu-shell"), "command": ["sh", "-c", f"echo hello; {SERVE}"]}
    spec = {"nodeName": node, "hostNetwork": host_network, "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**spec, "containers": [container]},
    }


def create(cluster: Cluster, *objects: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl(["apply", "-f", "-"], input_text=text)
    cluster.kubectl(["wait", "--for=condition=Ready", WAIT, *(f"pod/{item['metadata']['name']}" for item in objects)])


def wait_for_restart(cluster: Cluster, name: str) -> None:
    """Wait until a pod runs again after its node's reboot; ``Ready`` alone may still be the status from before it."""
    cluster.kubectl(["wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", WAIT, f"pod/{name}"])
    cluster.kubectl(["wait", "--for=condition=Ready", WAIT, f"pod/{name}"])


def execute(cluster: Cluster, name: str, command: list[str]) -> str:
    """Run a command in a pod; a kubelet that has just started knows neither its pods nor their containers yet."""
    limit = time.monotonic() + 30
    while True:
        try:
            return cluster.kubectl(["exec", name, "--", *command])
        except CommandError as error:
            if "unable to upgrade connection" not in error.hint or time.monotonic() > limit:
                raise
            time.sleep(0.5)


def test_every_engine_has_its_node(cluster: Cluster) -> None:
    nodes = {node.name: node for node in cluster.status().nodes}
    assert [nodes[name].engine.partition("://")[2][:3] for name in ("n1", "n2", "n3")] == ["2.2", "1.7", "1.6"]
    assert {(node.is_ready, node.gpus) for node in nodes.values()} == {(True, 0)}
    module = [cluster.site.node(name).run(["cat", "/sys/module/nvidia/version"]).stdout for name in nodes]
    assert module == ["535.261.03\n"] * 3


def test_pods_run_on_every_node_and_reach_one_another(cluster: Cluster) -> None:
    names = [node.name for node in cluster.status().nodes]
    create(cluster, *(pod(f"own-{name}", name) for name in names), pod("host", "n3", host_network=True))
    listed = json.loads(cluster.kubectl(["get", "pods", "-o", "json"]))["items"]
    addresses = {item["metadata"]["name"]: item["status"]["podIP"] for item in listed}
    assert addresses["host"] == cluster.site.node("n3").address
    for name in names:
        ping = ["exec", "own-n1", "--", "busybox", "ping", "-c", "1", "-W", "5", addresses[f"own-{name}"]]
        assert "1 packets received" in cluster.kubectl(ping)
    assert cluster.kubectl(["logs", "own-n2"]) == "hello\n"


def test_a_node_comes_back_from_a_reboot_by_itself(cluster: Cluster) -> None:
    before = next(node.boot_id for node in cluster.status().nodes if node.name == "n2")
    cluster.site.reboot("n2")
    cluster.up()
    assert next(node.boot_id for node in cluster.status().nodes if node.name == "n2") != before
    wait_for_restart(cluster, "own-n2")


def test_a_node_that_does_not_become_ready_shows_its_journals(cluster: Cluster) -> None:
    node = cluster.site.node("n1")
    node.run(["systemctl", "disable", "kubelet"])
    cluster.site.reboot("n1")
    with pytest.raises(StartError, match="node n1 is not Ready after 1 s") as failed:
        cluster.up(timeout_s=1)
    assert "end of the journal of kubelet on n1:" in failed.value.hint
    assert "end of the journal of containerd on n1:" in failed.value.hint
    assert "msg=" in failed.value.hint  # its lines, however much it has said since it started
    node.run(["systemctl", "enable", "--now", "kubelet"])
    cluster.up()
    wait_for_restart(cluster, "own-n1")


def test_engine_and_kubelet_restart_under_running_pods(cluster: Cluster) -> None:
    for name in ("n1", "n2", "n3"):
        cluster.site.node(name).run(["systemctl", "restart", "containerd", "kubelet"])
    cluster.up()
    assert execute(cluster, "own-n1", ["echo", "alive"]) == "alive\n"
    restarts = ["get", "pod", "own-n3", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"]
    assert cluster.kubectl(restarts) == "0"


def test_up_repairs_what_a_crash_took(cluster: Cluster) -> None:
    cluster.site.crash("n3")
    cluster.control_plane.kill()
    status = cluster.status()
    assert {process.pid for process in status.processes} == {0}
    assert not next(node.is_running for node in status.nodes if node.name == "n3")

    cluster.up()

    assert all(node.is_running and node.is_ready for node in cluster.status().nodes)
    cluster.kubectl(["wait", "--for=condition=Ready", WAIT, "pod/own-n1", "pod/own-n3"])


def test_other_nodes_are_refused_while_it_is_there(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="exists with other nodes"):
        cluster.up(SMALL)


def test_a_second_cluster_that_was_killed_while_it_started_leaves_nothing(cluster: Cluster) -> None:
    second = Cluster(f"{cluster.name}-b")
    try:
        with subprocess.Popen([sys.executable, "-c", UP, second.name]) as starting:
            node = second.site.folder / "nodes" / "n1" / "node.json"
            while not node.exists():
                assert starting.poll() is None
                time.sleep(0.01)
            starting.send_signal(signal.SIGKILL)
        assert traces(second)
    finally:
        second.down()
    assert traces(second) == []

    try:
        second.up(SMALL)
        assert [node.is_ready for node in second.status().nodes] == [True]
        shutil.rmtree(second.site.folder)
        with pytest.raises(ClusterError, match="still exists, but its folder"):
            second.up(SMALL)
    finally:
        second.down()
    assert traces(second) == []
    assert all(node.is_ready for node in cluster.status().nodes)


def test_down_leaves_nothing(cluster: Cluster) -> None:
    assert traces(cluster)
    cluster.down()
    assert traces(cluster) == []
    cluster.down()
