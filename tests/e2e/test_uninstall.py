"""The chart is uninstalled in the middle of a rollout, refused, taken away without its hooks, and installed again.

It takes six minutes: `make crashes` does it (``CRASHES=all``), and `make test` does the same on an API server alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import Cluster
from tests.e2e import controller_image
from tests.e2e.conftest import NAME
from tests.e2e.fleet import look
from tests.e2e.manifests import TEST, container, deployment, disruption_budget
from tests.e2e.test_chart import CHART, CLUSTER_KINDS, MARKS, NAMESPACE, OWN_KINDS, ROOT, Person, named
from tests.e2e.test_controller_upgrade import NEXT_BRANCH, UPGRADE, phase_of, version_of
from tests.e2e.test_drain import running
from tests.e2e.waiting import for_each, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("CRASHES") != "all", reason="it takes six minutes: `make crashes` does it"),
]

STACK, POOL = "uninstalled", "example.com/uninstalled"
CHANGE_S = 600.0
TAKER = "taker.service"
IS_AT_WORK = re.compile(r"(?<!nobody )is at work")
WORKS = container(image=TEST, command=["gpu-test", "hold"], gpus=1)
INSTALL = (
    f"helm install grapnel {CHART} --namespace {NAMESPACE} --create-namespace --wait "
    "--set image.repository=$REGISTRY/grapnel,controller.uninstall.timeoutMinutes=1"
)
UNINSTALL = f"helm uninstall grapnel --namespace {NAMESPACE} --wait"


@dataclass(frozen=True)
class Site:
    """One node with a stack of its own, and who installs the chart."""

    room: Room
    stage: Stage
    node: LabNode
    person: Person

    @property
    def cluster(self) -> Cluster:
        return self.person.cluster

    def declare(self, version: str) -> None:
        spec = {
            "nodeSelector": {"matchLabels": {POOL: "yes"}},
            "driver": {"version": version, "kernelModule": "none"},
            "rollout": {"maxUnavailable": 1, "soakMinutes": 0, "drainTimeoutMinutes": 30},
        }
        document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "metadata": {"name": STACK}, "spec": spec}
        self.cluster.kubectl(["apply", "--server-side", "-f", "-"], input_text=json.dumps(document))

    def stack(self) -> dict[str, Any]:
        return self.cluster.control_plane.api.read(f"/apis/grapnel.dev/v1alpha1/gpustacks/{STACK}")

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait_for(what, condition, timeout_s=CHANGE_S, evidence=self.person.evidence)

    def wait_until_declared(self) -> None:
        self.wait("it is as declared", lambda: self.stack().get("status", {}).get("state") == "AsDeclared")

    def wait_until_in(self, phase: str) -> None:
        self.wait(f"it is in {phase}", lambda: phase_of(self.stage, self.node) == phase)

    def put_in_use(self) -> None:
        """Have a Deployment with a budget that lets nobody evict its pod run on the node."""
        self.room.start(deployment("web", 1, WORKS, node=self.node.name), disruption_budget("web", min_available=1))
        wait_for("the Deployment's pod runs", lambda: running(self.room, "web"), evidence=self.room.evidence)

    def lift_budget(self) -> None:
        self.cluster.kubectl(["delete", "poddisruptionbudget", "web", "-n", self.room.name])

    def is_out(self) -> bool:
        return bool(self.stage.api.node(self.node.name).spec.unschedulable)

    def holders(self) -> list[str]:
        """Return who has a lease of grapnel."""
        path = "-o=jsonpath={.spec.holderIdentity}"
        names = ("grapnel-controller", "grapnel-upgrade")
        found = [self.cluster.kubectl(["get", "lease", name, "-n", "kube-system", path]) for name in names]
        return [each for each in found if each]

    def assert_gone(self) -> None:
        """Hold the chart to having left nothing at work, and nothing that waits for it."""
        assert named(self.cluster, OWN_KINDS, "-n", NAMESPACE) == []
        assert named(self.cluster, CLUSTER_KINDS) == []
        left = self.cluster.kubectl(["get", "pods,jobs,secrets", "-n", NAMESPACE, "-o", "name"]).split()
        assert left == [], self.person.evidence()
        assert self.holders() == []
        stack = self.stack()
        assert stack["status"]["state"] == "NoController"
        assert {each["status"] for each in stack["status"]["conditions"]} == {"Unknown"}
        assert not stack["metadata"].get("finalizers")


@pytest.fixture
def site(
    room: Room, lab_nodes: tuple[LabNode, ...], stage: Stage, operator: Operator, tmp_path: Path
) -> Iterator[Site]:
    """A node of a pool of its own; what is done to it is undone by the operator."""
    node, cluster = lab_nodes[0], Cluster(NAME)
    version = version_of(stage, lab_nodes[1:])
    for_each(lab_nodes, controller_image.load)
    cluster.kubectl(["label", "node", node.name, f"{POOL}=yes"])
    tmp_path.joinpath("deploy").symlink_to(ROOT / "deploy")
    person = Person(tmp_path, cluster, node.name)
    yield Site(room, stage, node, person)
    node.node.run(["systemctl", "stop", TAKER], check=False)
    room.clear()
    person.type(f"helm uninstall grapnel --namespace {NAMESPACE} --no-hooks --ignore-not-found")
    patch = ["patch", "gpustack", STACK, "--type=merge", "-p", '{"metadata": {"finalizers": null}}']
    for left in (
        patch,
        ["delete", "gpustacks", "--all"],
        ["delete", "namespace", NAMESPACE, "--ignore-not-found"],
        ["delete", "crd", "gpustacks.grapnel.dev", "--ignore-not-found"],
        ["label", "node", node.name, f"{POOL}-"],
        ["annotate", "node", node.name, *MARKS],
    ):
        cluster.kubectl(left)
    node.node.install_module(version)
    wait_for("a lease that nobody gave back has run out", lambda: not IS_AT_WORK.search(status(operator, tmp_path)))
    operator.declare(version)
    operator.converge(node)
    stage.wait_until_settled(node)


def test_the_chart_goes_with_nothing_in_flight_or_not_at_all_and_comes_back(site: Site, operator: Operator) -> None:
    """A node stayed cordoned without GPUs, and nobody had the right to bring it back any more."""
    former = look(site.stage, site.node).module
    site.person.type(INSTALL)
    site.declare(former)
    site.wait_until_declared()

    site.put_in_use()
    web = running(site.room, "web")
    site.node.node.install_module(NEXT_BRANCH)
    site.declare(NEXT_BRANCH)
    site.wait_until_in("drain")
    site.person.type(f"{UNINSTALL} --dry-run")
    assert site.is_out(), "which changes nothing"
    site.person.type(UNINSTALL)
    site.assert_gone()
    assert not site.is_out(), "it only waited for its pod, and is as before"
    assert UPGRADE not in (site.stage.api.node(site.node.name).metadata.annotations or {})
    assert running(site.room, "web") == web

    site.person.type(INSTALL)
    site.wait_until_in("drain")
    take_a_gpu(site.node)
    site.lift_budget()
    site.wait_until_in("release")
    site.person.type(UNINSTALL)  # although a process keeps a GPU: the driver is what it was
    site.assert_gone()
    assert not site.is_out()
    assert look(site.stage, site.node).module == former
    site.node.node.run(["systemctl", "stop", TAKER])
    site.person.type(INSTALL)
    site.wait_until_declared()
    assert look(site.stage, site.node).module == NEXT_BRANCH, "the next controller goes on"

    site.room.clear()
    site.put_in_use()
    site.node.node.install_module(former)
    site.declare(former)
    site.wait_until_in("drain")
    site.person.type(f"{UNINSTALL} --no-hooks")
    assert site.is_out()
    site.wait("its lease of work runs out", lambda: "left in drain" in status(operator, site.person.folder))
    site.wait("and that by which it led", lambda: "no controller leads" in status(operator, site.person.folder))
    assert "helm install" in status(operator, site.person.folder)
    site.person.type(INSTALL)
    site.lift_budget()
    site.wait_until_declared()
    assert look(site.stage, site.node).module == former
    assert not site.is_out()
    site.person.type(UNINSTALL)
    site.assert_gone()


def take_a_gpu(node: LabNode) -> None:
    """Have a process of the host that nobody's pod is keep a GPU open."""
    keep = ["sh", "-c", "exec 3<>/dev/nvidia0; exec sleep infinity"]
    node.node.run(["systemd-run", f"--unit={TAKER}", *keep])


def status(operator: Operator, folder: Path) -> str:
    """Return what `grapnel status` says where there is nothing but a kubeconfig."""
    done = subprocess.run(
        ["grapnel", "status", "--kubeconfig", str(operator.kubeconfig)],
        cwd=folder,
        env=operator.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return " ".join((done.stdout + done.stderr).split())
