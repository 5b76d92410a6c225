"""The real helm renders the chart, and every object is one that the API server of the stage knows."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab import golang, kubernetes_schemas
from tasks.chart import CHART, DEPLOY, ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = pytest.mark.functional

NAMESPACE = "grapnel-system"
IMAGE = ("--set", "image.repository=registry.example/grapnel")
EVERYTHING = (
    *("--set", "metrics.serviceMonitor.enabled=true", "--set", "metrics.prometheusRule.enabled=true"),
    *("--set", "metrics.dashboard.enabled=true", "--set", "controller.secrets={hooks,gates}"),
    *("--set", "image.pullSecrets={registry}", "--set", "controller.nodeSelector.pool=system"),
    *("--set", "nodeDaemon.enabled=true"),
)
DAEMONSET = "daemonset/grapnel-node.yaml"
OF_OTHERS = "ServiceMonitor,PrometheusRule"  # their schemas are not Kubernetes'


def helm(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([golang.helm() / "helm", *words], check=check, capture_output=True, text=True, timeout=120)


def template(*words: str) -> str:
    return helm("template", "grapnel", str(CHART), "--namespace", NAMESPACE, *words).stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def rules(documents: Iterable[dict[str, Any]]) -> dict[tuple[str, str], object]:
    """Return what each role and binding grants to whom, by kind and name."""
    kinds = {"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"}
    return {
        (each["kind"], each["metadata"]["name"]): (
            each["metadata"].get("namespace"),
            each.get("rules"),
            each.get("roleRef"),
            each.get("subjects"),
        )
        for each in documents
        if each["kind"] in kinds
    }


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    said = helm("lint", "--strict", str(CHART), *IMAGE).stdout

    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("words", [IMAGE, (*IMAGE, *EVERYTHING)], ids=["the defaults", "everything"])
def test_the_api_server_knows_every_object(words: tuple[str, ...], tmp_path: Path) -> None:
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(template(*words))
    place = f"{kubernetes_schemas.ensure()}/{kubernetes_schemas.LOCATION}"
    options = ("-strict", "-summary", "-skip", OF_OTHERS, "-schema-location", place)
    done = subprocess.run(
        [golang.kubeconform() / "kubeconform", *options, str(rendered)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Invalid: 0, Errors: 0" in done.stdout


def test_kubeconform_finds_a_key_that_is_not_there(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(template(*IMAGE).replace("terminationGracePeriodSeconds:", "terminationGraceSeconds:"))
    place = f"{kubernetes_schemas.ensure()}/{kubernetes_schemas.LOCATION}"
    options = ("-strict", "-skip", OF_OTHERS, "-schema-location", place)
    command = [golang.kubeconform() / "kubeconform", *options, str(wrong)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert "terminationGraceSeconds" in done.stdout


@pytest.mark.parametrize(
    ("words", "files"),
    [
        pytest.param(IMAGE, [f"rbac/{name}.yaml" for name in ROLES if name != "node"], id="the defaults"),
        pytest.param((*IMAGE, *EVERYTHING), [*(f"rbac/{name}.yaml" for name in ROLES), DAEMONSET], id="everything"),
    ],
)
def test_the_chart_grants_what_the_files_for_kubectl_grant(words: tuple[str, ...], files: list[str]) -> None:
    applied = [each for name in files for each in objects(DEPLOY.joinpath(name).read_text())]

    assert rules(objects(template(*words))) == rules(applied)


def test_another_namespace_has_the_account_and_its_bindings() -> None:
    made = objects(helm("template", "grapnel", str(CHART), "--namespace", "gpus", *IMAGE).stdout)

    assert NAMESPACE not in {each["metadata"].get("namespace") for each in made}
    subjects = [subject for each in made for subject in each.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"gpus"}


def test_the_controller_meets_the_restricted_standard() -> None:
    (deployment,) = (each for each in objects(template(*IMAGE, *EVERYTHING)) if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod)
    assert {each["mountPath"] for each in container["volumeMounts"]} == {
        "/tmp",
        "/etc/grapnel/controller/hooks",
        "/etc/grapnel/controller/gates",
    }


def test_the_definition_is_kept_when_the_chart_goes() -> None:
    (definition,) = (each for each in objects(template(*IMAGE)) if each["kind"] == "CustomResourceDefinition")

    assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert definition["spec"] == yaml.safe_load(DEPLOY.joinpath("crd", "gpustacks.yaml").read_text())["spec"]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        pytest.param((), "repository", id="no image"),
        pytest.param((*IMAGE, "--set", "controller.replicas=two"), "replicas", id="a word for a number"),
        pytest.param((*IMAGE, "--set", "controllers.replicas=2"), "controllers", id="a key that is misspelt"),
    ],
)
def test_wrong_values_are_refused_with_their_path(words: tuple[str, ...], path: str) -> None:
    done = helm("template", "grapnel", str(CHART), *words, check=False)

    assert done.returncode == 1
    assert "values don't meet the specifications of the schema" in done.stderr
    assert path in done.stderr
