"""A real kube-scheduler and API server with the extender: pods are bound and annotated, equal ones are told apart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
import yaml

from lab.cluster import ControlPlane
from plugin.base.log import Logger
from plugin.gpushare.books import pod_annotations
from plugin.gpushare.books.model import RESOURCE
from plugin.gpushare.books.objects import parse_pod
from plugin.gpushare.books.report import ANNOTATION, render_report
from plugin.gpushare.connections import Connections
from plugin.gpushare.extender import Extender
from plugin.gpushare.identity import Identity
from plugin.gpushare.server import extender_server
from tests.plugin.gpushare.documents import cards
from tests.plugin.gpushare.kubelet import Kubelet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.publication.node_object.api.messages import ApiResponse, Request

pytestmark = pytest.mark.functional  # etcd, an API server and a scheduler

CONFIG = Path(__file__).parents[3] / "deploy/gpushare/scheduler.yaml"
PAGE = CONFIG.with_name("README.md")
PATIENCE_S = 60.0
NO_KUBELETS_S = 86_400  # nodes stay ready although nobody says so: a change of theirs would wake the scheduler


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class HeldUp(Connections):
    """Hears of changes in the cluster while `hears` is set, and of what it missed afterwards."""

    hears: threading.Event

    def follow(self, request: Request, hear: Callable[[bytes], None]) -> ApiResponse:
        def hear_later(line: bytes) -> None:
            self.hears.wait()
            hear(line)

        return super().follow(request, hear_later)


class Served:
    """An extender in a thread, which may end and begin again."""

    def __init__(self, kubeconfig: Path, port: int, tls_folder: Path) -> None:
        self._kubeconfig, self._port, self._tls_folder = kubeconfig, port, tls_folder
        self.hears = threading.Event()
        self.hears.set()
        self._is_begun = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        self.extender: Extender | None = None

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._is_begun.set()
        connections = HeldUp(str(self._kubeconfig), {})
        connections.hears = self.hears
        self.extender = Extender(connections, RESOURCE, Logger())
        server = extender_server(self.extender, Logger(), identity=Identity(self._tls_folder, Logger()))
        await server.start("127.0.0.1", self._port)
        self.extender.start()
        await self._stop.wait()
        await server.close()
        await self.extender.stop()
        connections.close()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_begun.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.hears.set()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


class Cluster:
    """A control plane whose nodes have no kubelets but those of the test."""

    def __init__(self, control_plane: ControlPlane, port: int) -> None:
        self.control_plane, self.port = control_plane, port
        self.kubelets: dict[str, Kubelet] = {}

    def extender(self) -> Served:
        return Served(self.control_plane.kubeconfig, self.port, self.control_plane.folder / "gpushare")

    def kubectl(self, *arguments: str, body: object = None) -> str:
        return self.control_plane.kubectl(arguments, input_text=None if body is None else json.dumps(body))

    def add_node(self, name: str, *units: int) -> None:
        kubelet = self.kubelets[name] = Kubelet(cards(*units))
        self.kubectl("create", "-f", "-", body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        offered = {"cpu": "64", "memory": "64Gi", "pods": "110", RESOURCE: str(sum(units))}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = json.dumps({"status": {"capacity": offered, "allocatable": offered, "conditions": [ready]}})
        self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
        self._report(name, kubelet)

    def _report(self, name: str, kubelet: Kubelet) -> None:
        metadata = {"annotations": {ANNOTATION: render_report(kubelet.report(time.time_ns() + 10**9))}}
        self.kubectl("patch", "node", name, "--type=merge", "-p", json.dumps({"metadata": metadata}))

    def add_pod(self, name: str, units: int) -> None:
        resources = {"limits": {RESOURCE: str(units)}}
        container = {"name": "c0", "image": "none", "resources": resources}
        spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
        self.kubectl(
            "create", "-f", "-", body={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        )

    def pods(self) -> dict[str, dict[str, Any]]:
        found = self.control_plane.api.read("/api/v1/namespaces/default/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def bound(self) -> dict[str, str]:
        return {name: pod["spec"]["nodeName"] for name, pod in self.pods().items() if pod["spec"].get("nodeName")}

    def indices(self) -> dict[str, str | None]:
        return {
            name: pod["metadata"].get("annotations", {}).get(pod_annotations.INDEX) for name, pod in self.pods().items()
        }

    def admit(self, *names: str) -> None:
        """Have the kubelets admit pods in this order, and their daemons report it."""
        found = self.pods()
        for name in names:
            pod = parse_pod(found[name], RESOURCE)
            assert pod is not None
            self.kubelets[pod.node].admit(pod)
        for name, kubelet in self.kubelets.items():
            self._report(name, kubelet)

    def remove(self, *names: str) -> None:
        self.kubectl("delete", "pod", "--force", "--grace-period=0", "--ignore-not-found", *names)

    def events_of(self, pod: str) -> str:
        return self.kubectl("get", "events", "--field-selector", f"involvedObject.name={pod}")


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


def only_the_scheduler(folder: Path, port: int) -> dict[str, Any]:
    """Make certificates as the page has it, in another folder, and return its words for the scheduler."""
    section = PAGE.read_text().partition("## Only the scheduler")[2].replace("/etc/grapnel/gpushare", str(folder))
    commands, config = re.findall(r"\n```(?:yaml)?\n(.*?)\n```\n", section, re.DOTALL)
    subprocess.run(["/bin/bash", "-e"], input=commands, text=True, check=True, capture_output=True, timeout=PATIENCE_S)
    found: dict[str, Any] = yaml.safe_load(config.replace(":32766/", f":{port}/"))
    return found


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, int]]:
    port = free_port()
    folder = tmp_path_factory.mktemp("control-plane")
    [extender] = yaml.safe_load(CONFIG.read_text())["extenders"]
    extender |= only_the_scheduler(folder / "gpushare", port)
    made = ControlPlane(folder, node_grace_s=NO_KUBELETS_S)
    made.extenders = [extender]
    with made.running():
        yield made, port


@pytest.fixture
def cluster(control_plane: tuple[ControlPlane, int]) -> Iterator[Cluster]:
    made = Cluster(*control_plane)
    yield made
    made.remove("--all")
    for name in made.kubelets:
        with contextlib.suppress(Exception):
            made.kubectl("delete", "node", name)


def test_pods_are_bound_to_nodes_on_whose_cards_they_fit(cluster: Cluster) -> None:
    cluster.add_node("n1", 10, 10)
    cluster.add_node("n2", 16)
    with cluster.extender():
        cluster.add_pod("large", 12)  # of the sum of n1, but of none of its cards
        until(lambda: cluster.bound() == {"large": "n2"})
        found = cluster.pods()["large"]["metadata"]["annotations"]
        assert found.pop(pod_annotations.ASSUME_TIME).isdigit()
        assert found == {
            "ALIYUN_COM_GPU_MEM_IDX": "0",
            "ALIYUN_COM_GPU_MEM_DEV": "16",
            "ALIYUN_COM_GPU_MEM_POD": "12",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        }
        cluster.add_pod("larger", 17)
        until(lambda: "no card has 17 units" in cluster.events_of("larger"))


def test_equal_pods_that_are_admitted_the_other_way_round_are_told_apart(cluster: Cluster) -> None:
    cluster.add_node("n1", 10, 10)
    with cluster.extender():
        cluster.add_pod("a", 6)
        until(lambda: "a" in cluster.bound())
        cluster.add_pod("b", 6)
        until(lambda: "b" in cluster.bound())
        assert cluster.indices() == {"a": "0", "b": "1"}
        cluster.admit("b", "a")
        until(lambda: cluster.indices() == {"a": "1", "b": "0"})


def test_units_of_pods_that_are_gone_are_given_again_also_by_another_extender(cluster: Cluster) -> None:
    cluster.add_node("n1", 10)
    with cluster.extender():
        cluster.add_pod("a", 8)
        until(lambda: "a" in cluster.bound())
    with cluster.extender():
        cluster.add_pod("b", 8)
        time.sleep(2)
        assert "b" not in cluster.bound()
        cluster.remove("a")
        until(lambda: "b" in cluster.bound())


def test_a_scheduler_that_hears_of_free_units_before_the_extender_asks_again(cluster: Cluster) -> None:
    """Without being woken it would ask with the next change in the cluster, or after five minutes."""
    cluster.add_node("n1", 10)
    with cluster.extender() as served:
        cluster.add_pod("first", 8)
        until(lambda: "first" in cluster.bound())
        cluster.add_pod("second", 8)
        until(lambda: "Insufficient" in cluster.events_of("second"))
        served.hears.clear()
        cluster.remove("first")
        until(lambda: "no card has 8 free units" in cluster.events_of("second"))
        served.hears.set()
        until(lambda: "second" in cluster.bound())


def test_many_pods_at_once_never_take_more_than_a_card_has(cluster: Cluster) -> None:
    for name in ("n1", "n2"):
        cluster.add_node(name, 16, 16)
    with cluster.extender():
        for number in range(24):
            cluster.add_pod(f"p{number}", 1 + number % 5)
        until(lambda: len(cluster.bound()) >= 16)
        admitted: set[str] = set()
        deadline = time.monotonic() + PATIENCE_S
        while sum(len(each.given) for each in cluster.kubelets.values()) < 50 and time.monotonic() < deadline:
            waiting = sorted(cluster.bound().keys() - admitted)
            cluster.admit(*waiting)  # raises where one finds no card
            admitted.update(waiting)
            time.sleep(0.5)
        assert sum(len(each.given) for each in cluster.kubelets.values()) >= 50
