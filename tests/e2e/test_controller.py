"""The controller on the stage: Jobs on a real kubelet look at a node, change it, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import Cluster
from tests.e2e import controller_image
from tests.e2e.conftest import NAME
from tests.e2e.controller_image import PAYLOAD
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
FILES = [
    *("deploy/crd/gpustacks.yaml", "deploy/rbac/operator.yaml", "deploy/rbac/telling.yaml"),
    "deploy/rbac/controller.yaml",
]
POOL, STACK = "example.com/pool", "controlled"


@pytest.fixture
def cluster(lab_nodes: tuple[LabNode, ...]) -> Iterator[Cluster]:
    """The stage with the custom resource and the controller's account, and without them afterwards."""
    assert lab_nodes
    found = Cluster(NAME)
    files = [word for name in FILES for word in ("-f", str(ROOT / name))]
    found.kubectl(["apply", *files])
    found.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / FILES[0])])
    yield found
    for name in found.kubectl(["get", "gpustacks", "-o", "name"]).split():  # one that a failed test has left is kept
        found.kubectl(["patch", name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}'])
    found.kubectl(["delete", "gpustacks", "--all"])
    found.kubectl(["delete", *files])


# With containerd, every run has Jobs that make a GPU node (test_chart), and that change its driver.
@pytest.fixture(params=[pytest.param("containerd", marks=pytest.mark.long), "crio"])
def node(
    request: pytest.FixtureRequest, lab_nodes: tuple[LabNode, ...], stage: Stage, cluster: Cluster
) -> Iterator[LabNode]:
    """A node of the stack with one of the engines, and with the image."""
    chosen = next((each for each in lab_nodes if each.engine == request.param), None)
    if chosen is None:
        pytest.skip("no node of this cluster has CRI-O")
    controller_image.load(chosen)
    cluster.kubectl(["label", "node", chosen.name, f"{POOL}=a"])
    yield chosen
    cluster.kubectl(["label", "node", chosen.name, f"{POOL}-"])
    gone = [f"grapnel.dev/{name}-" for name in ("as-declared", "failed")]
    cluster.kubectl(["annotate", "node", chosen.name, *gone])
    stage.wait_until_settled(chosen)


@dataclass(frozen=True)
class Running:
    """A controller that runs, and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def is_there(self) -> bool:
        """Tell that it still runs; where it has ended, nothing is waited for any longer."""
        assert self.process.poll() is None, f"it has ended with {self.process.returncode}\n{self.log.read_text()}"
        return True


@contextmanager
def controller(cluster: Cluster, folder: Path) -> Iterator[Running]:
    """Run `grapnel controller` with its own account while inside."""
    # a kubelet would renew it
    token = cluster.kubectl(["create", "token", "grapnel-controller", "-n", "grapnel-system", "--duration=4h"]).strip()
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig, log = folder / "controller.kubeconfig", folder / "controller.log"
    kubeconfig.write_text(json.dumps(config))
    command = [str(Path(sys.executable).parent / "grapnel"), "controller", "--kubeconfig", str(kubeconfig)]
    command += [
        "--image",
        controller_image.REFERENCE,
        "--payload",
        str(PAYLOAD),
        "--holder",
        "ctl-0",
        "--probes",
        "127.0.0.1:0",
    ]
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process,
    ):
        try:
            yield Running(process, log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()


def declare(cluster: Cluster, node: LabNode, **plugin: object) -> None:
    driver = {"version": node.module_version(), "kernelModule": "none"}
    parts = {"driver": driver, "runtime": {"engine": node.engine}, "plugin": plugin}
    spec = {"nodeSelector": {"matchLabels": {POOL: "a"}}, **parts}
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "metadata": {"name": STACK}, "spec": spec}
    cluster.kubectl(["apply", "--server-side", "-f", "-"], input_text=json.dumps(document))


def status(cluster: Cluster, stack: str = STACK) -> dict[str, Any]:
    """Return the status of a stack for its present spec, empty while it is about a former one."""
    found = cluster.control_plane.api.read(f"/apis/grapnel.dev/v1alpha1/gpustacks/{stack}")
    told: dict[str, Any] = found.get("status", {})
    return told if told.get("observedGeneration") == found["metadata"]["generation"] else {}


def jobs(cluster: Cluster) -> list[str]:
    return cluster.kubectl(["get", "jobs,pods,secrets", "-n", "grapnel-system", "-o", "name"]).split()


def test_a_node_is_looked_at_and_changed_by_jobs(cluster: Cluster, node: LabNode, tmp_path: Path) -> None:
    before = node.node.root.joinpath("etc/grapnel/node.json").read_text()
    declare(cluster, node)
    with controller(cluster, tmp_path) as running:

        def is_done() -> bool:
            return running.is_there() and status(cluster).get("state") == "AsDeclared"

        def evidence() -> str:
            return f"{json.dumps(status(cluster))}\n{running.log.read_text()}"

        wait_for("the node is found as declared", is_done, timeout_s=120, evidence=evidence)
        assert node.node.root.joinpath("etc/grapnel/node.json").read_text() == before
        declare(cluster, node, metricsAddress="127.0.0.1:9400")
        wait_for("the node is changed", is_done, timeout_s=180, evidence=evidence)
        assert "127.0.0.1:9400" in node.node.root.joinpath("etc/grapnel/node.json").read_text()
        declare(cluster, node)
        wait_for("the node is as it was", is_done, timeout_s=180, evidence=evidence)
        assert node.node.root.joinpath("etc/grapnel/node.json").read_text() == before
        wait_for("its Jobs are gone", lambda: jobs(cluster) == [], evidence=lambda: str(jobs(cluster)))
