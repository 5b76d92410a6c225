"""A real scheduler places the pods of the chart's controller by the preferences of the chart."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab import golang
from lab.cluster import ControlPlane
from tasks.generated.chart import CHART
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional  # etcd, an API server and a scheduler

ROLE = "node-role.kubernetes.io/control-plane"
MANAGED = {"nvidia.com/gpu.count": "8"}
NO_KUBELETS_S = 86_400  # nodes stay ready although nobody says so
OFFERED = {"cpu": "8", "memory": "64Gi", "pods": "110"}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = ControlPlane(tmp_path_factory.mktemp("control-plane"), node_grace_s=NO_KUBELETS_S)
    with made.running():
        yield made


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    made = Cluster(control_plane)
    yield made
    made.clear()


class Cluster:
    """Nodes without kubelets, and the controller's pods."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane

    def _kubectl(self, *arguments: str, body: object = None) -> str:
        return self._control_plane.kubectl(arguments, input_text=None if body is None else json.dumps(body))

    def add_node(self, name: str) -> None:
        """Add a Node, whose kind is what its name begins with."""
        labels = {"cp": {ROLE: ""}, "gpu": MANAGED, "plain": {}}[name.partition("-")[0]]
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        self._kubectl("create", "-f", "-", body={"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"status": {"capacity": OFFERED, "allocatable": OFFERED, "conditions": [ready]}}
        self._kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
        taints = [{"key": ROLE, "effect": "NoSchedule"}] if ROLE in labels else []
        spec = {"spec": {"taints": taints}}  # without that of a node that has just joined
        self._kubectl("patch", "node", name, "--type=merge", "-p", json.dumps(spec))

    def place(self, pod: dict[str, Any]) -> list[str]:
        """Have two pods placed one after the other; return the nodes."""
        return [self._place(pod, name) for name in ("a", "b")]

    def _place(self, pod: dict[str, Any], name: str) -> str:
        metadata = {**pod["metadata"], "name": name}
        self._kubectl("create", "-f", "-", body={**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        wait_until(lambda: bool(self._node_of(name)), lambda: self._kubectl("describe", "pod", name))
        return self._node_of(name)

    def _node_of(self, pod: str) -> str:
        found = self._control_plane.api.read(f"/api/v1/namespaces/default/pods/{pod}")
        return str(found["spec"].get("nodeName", ""))

    def clear(self) -> None:
        """Take everything away."""
        self._kubectl("delete", "pod", "--all", "--force", "--grace-period=0")
        self._kubectl("delete", "node", "--all")


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    words = ("template", "grapnel", str(CHART), "--set", "image.repository=registry.example/grapnel")
    text = subprocess.run(
        [golang.helm() / "helm", *words], check=True, capture_output=True, text=True, timeout=120
    ).stdout
    (made,) = (each for each in yaml.safe_load_all(text) if each and each["kind"] == "Deployment")
    found: dict[str, Any] = made["spec"]["template"]
    found["spec"] |= {"serviceAccountName": "default", "priorityClassName": ""}
    return found


GPUS = tuple(f"gpu-{number}" for number in range(3))


@pytest.mark.parametrize(
    ("nodes", "kinds", "is_spread"),
    [
        pytest.param(("cp-0", *GPUS), {"cp"}, False, id="both on the only machine of the control plane"),
        pytest.param(("cp-0", "plain-0", "plain-1", *GPUS), {"cp"}, False, id="and not on a node of anybody's"),
        pytest.param(("cp-0", "cp-1", "cp-2", *GPUS), {"cp"}, True, id="on two machines of a control plane"),
        pytest.param(("plain-0", *GPUS), {"plain"}, False, id="without a GPU where nobody sees the control plane"),
        pytest.param(("plain-0", "plain-1", *GPUS), {"plain"}, True, id="on two nodes without a GPU"),
        pytest.param(GPUS, {"gpu"}, True, id="with GPUs where there is nothing else"),
    ],
)
def test_the_controller_keeps_away_from_nodes_with_gpus(
    cluster: Cluster, pod: dict[str, Any], nodes: tuple[str, ...], kinds: set[str], *, is_spread: bool
) -> None:
    for name in nodes:
        cluster.add_node(name)
    placed = cluster.place(pod)

    assert {name.partition("-")[0] for name in placed} == kinds
    assert (len(set(placed)) == 2) is is_spread
