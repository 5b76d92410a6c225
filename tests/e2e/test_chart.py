"""The chart on the stage, by the commands of docs/getting-started.md: a bare node, a pod with a GPU, and away."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab import golang
from lab.cluster import Cluster
from lab.machine.errors import CommandError
from tests.e2e import controller_image
from tests.e2e.conftest import NAME
from tests.e2e.getting_started import PAGE, Guide, read_guide
from tests.e2e.manifests import SHELL
from tests.e2e.waiting import for_each, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.operator import Operator
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = PAGE.parents[1]
CHART, NAMESPACE = "deploy/chart/grapnel", "grapnel-system"
COMMAND_TIMEOUT_S = 600
OWN_KINDS = "deployments,daemonsets,services,networkpolicies,poddisruptionbudgets,roles,rolebindings,serviceaccounts"
CLUSTER_KINDS = "clusterroles,clusterrolebindings,priorityclasses,validatingadmissionpolicies"
# The node daemon as a pod, where no node is: those of the stage have it as a service.
OTHER_VALUES = "--set image.tag=,controller.parallel=5 --set nodeDaemon.enabled=true,nodeDaemon.nodeSelector.is=none"
MARKS = [f"grapnel.dev/{name}-" for name in ("as-declared", "failed")]


@dataclass(frozen=True)
class Person:
    """Who follows the page: a folder with its files, and the programs of the lab."""

    folder: Path
    cluster: Cluster
    node: str

    def type(self, command: str, *, fails: bool = False) -> str:
        """Run a command of the page as it stands there; return what it prints."""
        programs = f"{golang.helm()}:{golang.kubernetes()}"
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "KUBECONFIG": str(self.cluster.kubeconfig),
                "HOME": str(self.folder),
                "REGISTRY": controller_image.REGISTRY,
                "NODE": self.node,
            },
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}{done.stderr}\n{self.evidence()}"
        return done.stdout + done.stderr

    def evidence(self) -> str:
        """Return what the cluster says when a command did not do what it should."""
        looks = (
            ["get", "pods,jobs", "-n", NAMESPACE, "-o", "wide"],
            ["get", "gpustacks", "-o", "yaml"],
            ["logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=controller", "--tail=40"],
            ["get", "events", "-n", NAMESPACE],
            ["get", "pods", "-n", "default", "-o", "yaml"],
        )
        said = []
        for look in looks:
            with suppress(CommandError):
                said.append(self.cluster.kubectl(look))
        return "\n".join(said)


@pytest.fixture
def bare(lab_nodes: tuple[LabNode, ...], stage: Stage, operator: Operator) -> Iterator[LabNode]:
    """A node that grapnel was taken away from, and that is as before afterwards."""
    chosen = lab_nodes[0]
    done = operator.grapnel("remove", chosen.name, "--yes", "--kubeconfig", str(operator.kubeconfig))
    assert done.returncode == 0, done.stdout + done.stderr
    yield chosen
    operator.converge(chosen)
    stage.wait_until_settled(chosen)


@pytest.fixture
def person(lab_nodes: tuple[LabNode, ...], bare: LabNode, tmp_path: Path) -> Iterator[Person]:
    """Somebody with the page's files; whatever they have made is gone afterwards."""
    cluster = Cluster(NAME)
    for_each(lab_nodes, controller_image.load)
    tmp_path.joinpath("deploy").symlink_to(ROOT / "deploy")
    yield Person(tmp_path, cluster, bare.name)
    for left in (
        ["delete", "pod", "first-gpu", "--ignore-not-found", "--grace-period=1"],
        ["delete", "gpustacks", "--all"],
        ["delete", "namespace", NAMESPACE, "--ignore-not-found"],
        ["delete", "crd", "gpustacks.grapnel.dev", "--ignore-not-found"],
        ["label", "node", bare.name, "node.example.com/pool-"],
        ["annotate", "node", bare.name, *MARKS],
    ):
        with suppress(CommandError):  # the test has failed before there was any
            cluster.kubectl(left)


def save_files(guide: Guide, person: Person, version: str) -> None:
    """Save the page's files with what the lab has: a module that is loaded already, an image that needs no registry."""
    stack, pod = guide.files["gpustack.yaml"], guide.files["pod.yaml"]
    stack["spec"]["driver"] = {"version": version, "kernelModule": "none"}
    pod["spec"]["containers"][0]["image"] = SHELL
    for name, document in guide.files.items():
        person.folder.joinpath(name).write_text(yaml.safe_dump(document))


def named(cluster: Cluster, kinds: str, *where: str) -> list[str]:
    """Return what helm has made of these kinds."""
    label = ["-l", "app.kubernetes.io/managed-by=Helm"]
    return cluster.kubectl(["get", kinds, *where, *label, "-o", "name"]).split()


def controller_of(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.kubectl(["get", "deployment", "grapnel-controller", "-n", NAMESPACE, "-o", "json"])
    )
    return found


def test_the_page_leads_from_a_bare_node_to_a_pod_with_a_gpu_and_away(
    person: Person, bare: LabNode, lab_nodes: tuple[LabNode, ...]
) -> None:
    guide, cluster = read_guide(), person.cluster
    save_files(guide, person, lab_nodes[-1].module_version())  # the bare one has no module
    assert not bare.node.root.joinpath("etc/grapnel/node.json").exists()
    install, *others = guide.first

    refused = person.type(f"{install} --set controller.replicas=two", fails=True)
    assert "controller/replicas" in refused or "controller.replicas" in refused
    person.type(install)
    for command in others:
        person.type(command)
    is_over = ["wait", "pod/first-gpu", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s"]
    cluster.kubectl(is_over)
    # An engine tells of the end before the last lines are in the log: containerd copies them in a routine of its own.
    (line,) = wait_for(
        "the pod's log", lambda: cluster.kubectl(["logs", "first-gpu"]).splitlines(), evidence=person.evidence
    )
    assert "UUID: GPU-" in line

    upgrade, rollback, uninstall = guide.later
    missing = person.type(f"{upgrade} --timeout 15s --set image.tag=missing", fails=True)
    assert "grapnel-controller" in missing
    assert controller_of(cluster)["status"]["availableReplicas"] >= 1, "the former release goes on"
    person.type(f"{rollback} 1")
    person.type(f"{upgrade} {OTHER_VALUES}")
    assert "--parallel=5" in json.dumps(controller_of(cluster))
    assert named(cluster, "daemonsets", "-n", NAMESPACE) == ["daemonset.apps/grapnel-node"]
    person.type(rollback)
    assert "--parallel=20" in json.dumps(controller_of(cluster))
    assert named(cluster, "daemonsets", "-n", NAMESPACE) == []

    person.type(uninstall)
    wait_for("the pods have ended", lambda: not cluster.kubectl(["get", "pods", "-n", NAMESPACE, "-o", "name"]).split())
    assert named(cluster, OWN_KINDS, "-n", NAMESPACE) == []
    assert named(cluster, CLUSTER_KINDS) == []
    assert cluster.kubectl(["get", "gpustacks", "-o", "name"]).split() == ["gpustack.grapnel.dev/gpus"]
    assert bare.node.root.joinpath("etc/grapnel/node.json").exists()
