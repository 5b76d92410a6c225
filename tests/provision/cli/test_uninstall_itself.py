"""`grapnel uninstall` with no more than what deploy/rbac grants it, on a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from provision.cli import main
from provision.controller.stacks.writer import FINALIZER
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_access import user
from tests.provision.stacks.conftest import stage
from tests.provision.stacks.samples import document

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

__all__ = ["stage"]
pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
RIGHTS = Path(__file__).parents[3] / "deploy" / "rbac" / "uninstall.yaml"
NAMESPACE, NAME = "grapnel-system", "grapnel-controller"
LABELS = {"app": "controller"}
OTHER_NODES = {"spec": {"nodeSelector": {"matchLabels": {"pool": "z"}}}}


def make_deployment(stage: Stage) -> None:
    """Make a Deployment whose pods no kubelet ever starts."""
    pod = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "missing.example/x"}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": pod},
    }
    stage.kubectl("create", "-f", "-", data=deployment)
    wait_until(lambda: len(pods(stage)) == 2, "it has its pods")


def pods(stage: Stage) -> list[Any]:
    found: list[Any] = stage.get("pods", "-n", NAMESPACE)["items"]
    return found


def rights(stage: Stage, *, without: str = "") -> str:
    """Grant what the file has, but for what is about one resource; return the kubeconfig of its account."""
    objects = list(yaml.safe_load_all(RIGHTS.read_text()))
    for each in objects:
        if each["kind"].endswith("Role"):
            each["rules"] = [rule for rule in each["rules"] if without not in rule["resources"]]
    stage.kubectl("apply", "-f", "-", data={"apiVersion": "v1", "kind": "List", "items": objects})
    token = stage.kubectl("create", "token", "grapnel-uninstall", "-n", NAMESPACE).strip()
    return str(user(stage, "grapnel-uninstall", token))


def uninstall(kubeconfig: str) -> int:
    return main(["uninstall", "--deployment", NAME, "--namespace", NAMESPACE, "--kubeconfig", kubeconfig])


def test_it_needs_no_more_than_it_is_granted(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.kubectl("create", "namespace", NAMESPACE)
    make_deployment(stage)
    stage.kubectl("create", "-f", "-", data=document("fleet", {"nodeSelector": {"matchLabels": {"pool": "x"}}}))
    kept = json.dumps({"metadata": {"finalizers": [FINALIZER]}})
    stage.kubectl("patch", "gpustack", "fleet", "--type=merge", "-p", kept)

    assert uninstall(rights(stage, without="deployments/scale")) == 1
    assert "may not patch deployments/scale" in capsys.readouterr().err
    assert stage.get("deployment", NAME, "-n", NAMESPACE)["spec"]["replicas"] == 2

    assert uninstall(rights(stage)) == 0
    assert "nothing is in flight" in capsys.readouterr().out
    assert stage.get("deployment", NAME, "-n", NAMESPACE)["spec"]["replicas"] == 0
    assert pods(stage) == []
    stack = stage.get("gpustack", "fleet")
    assert stack["status"]["state"] == "NoController"
    assert not stack["metadata"].get("finalizers")
    assert "annotations" not in stage.get("lease", "grapnel-controller", "-n", "kube-system")["metadata"]
    stage.kubectl("delete", "gpustack", "fleet", "--timeout=20s")


@pytest.fixture(scope="module")
def narrowed(stage: Stage) -> str:
    """Return the name of a stack on which the account's policy is in force, which takes seconds."""
    stage.kubectl("apply", "-f", str(RIGHTS))
    stage.kubectl("create", "-f", "-", data=document("narrowed", {"nodeSelector": {"matchLabels": {"pool": "y"}}}))
    kept = {"metadata": {"finalizers": [FINALIZER, "example.com/kept"], "labels": {"a": "b"}}}
    stage.kubectl("patch", "gpustack", "narrowed", "--type=merge", "-p", json.dumps(kept))
    wait_until(lambda: "may not change what" in patched(stage, "narrowed", OTHER_NODES, "--dry-run=server"), "in force")
    return "narrowed"


def patched(stage: Stage, name: str, patch: object, *options: str) -> str:
    """Return why the account may not change a stack, "" where it has."""
    account = f"--as=system:serviceaccount:{NAMESPACE}:grapnel-uninstall"
    program = [str(stage.control_plane.programs / "kubectl"), f"--kubeconfig={stage.control_plane.kubeconfig}"]
    words = ["patch", "gpustack", name, "--type=merge", "-p", json.dumps(patch), account, *options]
    done = subprocess.run([*program, *words], capture_output=True, text=True, check=False, timeout=60)
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        pytest.param(OTHER_NODES, "may not change what a GpuStack declares", id="other nodes"),
        pytest.param({"metadata": {"labels": None}}, "grapnel's finalizer", id="labels"),
        pytest.param({"metadata": {"annotations": {"x": "y"}}}, "grapnel's finalizer", id="annotations"),
        pytest.param({"metadata": {"finalizers": [FINALIZER]}}, "grapnel's finalizer", id="another's finalizer"),
    ],
)
def test_it_changes_nothing_else_of_a_stack(stage: Stage, narrowed: str, patch: object, why: str) -> None:
    assert why in patched(stage, narrowed, patch)


def test_it_takes_its_own_finalizer_off_among_others(stage: Stage, narrowed: str) -> None:
    assert not patched(stage, narrowed, {"metadata": {"finalizers": ["example.com/kept"]}})
    stage.kubectl("patch", "gpustack", narrowed, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
