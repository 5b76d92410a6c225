"""The real helm renders the chart, and every object is one that the API server of the stage knows."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab import golang
from lab.tools import kubernetes_schemas
from provision.controller.stacks.secret_hosts import SecretHosts, parse_secret_hosts
from tasks.generated.chart import CHART, DEPLOY, ROLES

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
    *("--set", "nodeDaemon.enabled=true", "--set", "nodeDaemon.claims.enabled=true"),
    *("--set", "dra.deviceClasses=true", "--set", "dra.computeDomains=true"),
)
RIGHTS = "rbac/uninstall.yaml"
DAEMONSET = "daemonset/grapnel-node.yaml"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # where every client looks for it
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
        pytest.param(
            IMAGE,
            [f"rbac/{name}.yaml" for name in ROLES if not name.startswith(("node", "compute"))],
            id="the defaults",
        ),
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


@pytest.mark.parametrize(
    ("kind", "mounts"),
    [
        ("Deployment", {"/tmp", ACCOUNT, "/etc/grapnel/controller/hooks", "/etc/grapnel/controller/gates"}),
        ("Job", {"/tmp", ACCOUNT}),
    ],
    ids=["the controller", "its uninstallation"],
)
def test_its_pods_meet_the_restricted_standard(kind: str, mounts: set[str]) -> None:
    (made,) = (each for each in objects(template(*IMAGE, *EVERYTHING)) if each["kind"] == kind)
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod)
    assert {each["mountPath"] for each in container["volumeMounts"]} == mounts


def pod_of(kind: str, *words: str) -> dict[str, Any]:
    (made,) = (each for each in objects(template(*IMAGE, *words)) if each["kind"] == kind)
    pod: dict[str, Any] = made["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_its_token_is_of_one_pod_and_an_hour(kind: str) -> None:
    """The API server makes the one that it mounts by itself, for 3607 s, valid for a year."""
    pod = pod_of(kind)
    sources = [source for each in pod["volumes"] if "projected" in each for source in each["projected"]["sources"]]

    assert pod["automountServiceAccountToken"] is False
    assert [each["serviceAccountToken"] for each in sources if "serviceAccountToken" in each] == [
        {"path": "token", "expirationSeconds": 3600}
    ]


def test_it_prefers_the_control_plane_then_nodes_without_a_gpu() -> None:
    pod = pod_of("Deployment")
    first, second = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]

    assert first["preference"]["matchExpressions"] == [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    ]
    assert {each["key"] for each in second["preference"]["matchExpressions"]} == {
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.count",
        "grapnel.dev/driver.kernel-module",
    }
    assert first["weight"] > second["weight"]
    control_plane = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
    assert control_plane in pod["tolerations"]
    (container,) = pod["containers"]
    fields = {each["name"]: each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for each in container["env"]}
    assert fields["NODE_NAME"] == "spec.nodeName", "so that the controller can say where it runs"


MINE = '{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}'


@pytest.mark.parametrize(
    ("words", "affinity"),
    [
        pytest.param(("--set-json", f"controller.affinity={MINE}"), yaml.safe_load(MINE), id="an affinity"),
        pytest.param(("--set", "controller.nodeSelector.pool=system"), None, id="a node selector"),
    ],
)
def test_where_somebody_says_where_it_runs_it_prefers_nothing(words: tuple[str, ...], affinity: object) -> None:
    assert pod_of("Deployment", *words).get("affinity") == affinity


def test_tolerations_of_somebody_replace_those_of_the_chart() -> None:
    found = pod_of("Deployment", "--set-json", 'controller.tolerations=[{"key":"pool","operator":"Exists"}]')

    assert found["tolerations"] == [{"key": "pool", "operator": "Exists"}]


def test_the_controller_is_told_where_secrets_may_be_used() -> None:
    values = {"gates": ["prometheus.example.com", "thanos.example.com:9090"], "hooks": ["alerts.test"]}
    (container,) = pod_of("Deployment", "--set-json", f"controller.secretHosts={json.dumps(values)}")["containers"]
    options = [each for each in container["args"] if each.startswith("--secret-hosts=")]

    assert parse_secret_hosts(each.partition("=")[2] for each in options) == SecretHosts(
        {name: frozenset(listed) for name, listed in values.items()}
    )


def test_an_image_by_digest_is_that_of_its_jobs_too() -> None:
    digest = f"sha256:{'a' * 64}"
    (container,) = pod_of("Deployment", "--set", f"image.digest={digest}")["containers"]

    assert container["image"] == f"registry.example/grapnel@{digest}"
    assert {"name": "GRAPNEL_IMAGE", "value": container["image"]} in container["env"]


def hooks(*words: str) -> list[dict[str, Any]]:
    """Return what helm makes at certain moments alone."""
    made = objects(template(*IMAGE, *words))
    return [each for each in made if "helm.sh/hook" in each["metadata"].get("annotations", {})]


def test_what_ends_the_controller_is_there_for_an_uninstallation_alone() -> None:
    made = hooks()

    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in made} == {"pre-delete"}
    named = [f"{each['kind']} {each['metadata']['name']}" for each in made]
    expected = {f"{each['kind']} {each['metadata']['name']}" for each in objects((DEPLOY / RIGHTS).read_text())}
    assert set(named) == expected | {"Job grapnel-uninstall"}
    assert len(named) == len({*named, "Role in kube-system", "RoleBinding in kube-system"})
    (job,) = (each for each in made if each["kind"] == "Job")
    weights = {int(each["metadata"]["annotations"].get("helm.sh/hook-weight", "0")) for each in made if each is not job}
    assert weights == {-1}, "its rights are there before it"
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "grapnel-uninstall"


def test_an_uninstallation_that_waits_for_longer_has_a_job_that_may() -> None:
    (job,) = (each for each in hooks("--set", "controller.uninstall.timeoutMinutes=60") if each["kind"] == "Job")

    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "--wait=60" in container["args"]
    assert job["spec"]["activeDeadlineSeconds"] == 60 * 60 + 90


def test_an_uninstallation_that_does_not_wait_has_no_hook() -> None:
    assert hooks("--set", "controller.uninstall.enabled=false") == []


def test_the_pods_of_both_may_reach_the_api_server() -> None:
    made = objects(template(*IMAGE))
    (policy,) = (each for each in made if each["kind"] == "NetworkPolicy")
    (expression,) = policy["spec"]["podSelector"]["matchExpressions"]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in made if each["kind"] in {"Deployment", "Job"}]

    assert {each[expression["key"]] for each in labels} == set(expression["values"])
    wanted = policy["spec"]["podSelector"]["matchLabels"]
    assert all(wanted.items() <= each.items() for each in labels)


def device_classes(*words: str) -> dict[str, dict[str, Any]]:
    made = [each for each in objects(template(*IMAGE, *words)) if each["kind"] == "DeviceClass"]
    assert all(each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for each in made)
    return {each["metadata"]["name"]: each["spec"] for each in made}


def test_classes_of_devices_are_those_of_kubectl_and_made_where_somebody_wants_them() -> None:
    applied = objects(DEPLOY.joinpath("dra", "deviceclasses.yaml").read_text())

    assert device_classes() == {}
    assert device_classes("--set", "dra.deviceClasses=true") == {
        each["metadata"]["name"]: each["spec"] for each in applied
    }


def test_classes_of_other_devices_are_made_that_are_named() -> None:
    applied = {
        each["metadata"]["name"]: each["spec"]
        for each in objects(DEPLOY.joinpath("dra", "otherclasses.yaml").read_text())
    }
    wanted = {f"{name}.devices.grapnel.dev" for name in ("rdma-shared", "xilinx-fpga")}

    found = device_classes("--set", "dra.otherClasses={rdma-shared,xilinx-fpga}", "--set", "dra.extendedResourceName=")

    assert found == {name: applied[name] for name in wanted}


def test_each_ready_file_of_devices_has_a_class_with_the_name_of_its_resource() -> None:
    applied = objects(DEPLOY.joinpath("dra", "otherclasses.yaml").read_text())
    names = {each["metadata"]["name"]: each["spec"].get("extendedResourceName", "") for each in applied}
    resources = {path.stem: json.loads(path.read_text())["resource"] for path in DEPLOY.glob("devices/*.json")}

    assert names == {
        f"{name}.devices.grapnel.dev": "" if "{" in resource else resource for name, resource in resources.items()
    }


def test_the_policy_on_slices_is_that_of_kubectl_unless_nobody_wants_it() -> None:
    def made(*words: str) -> dict[str, Any]:
        found = [
            each for each in objects(template(*IMAGE, *words)) if each["metadata"]["name"] == "grapnel-resourceslices"
        ]
        return {each["kind"]: each["spec"] for each in found}

    applied = objects(DEPLOY.joinpath("dra", "slicepolicy.yaml").read_text())
    assert made() == {each["kind"]: each["spec"] for each in applied}
    assert made("--set", "dra.slicePolicy=false") == {}


def test_compute_domains_are_served_where_they_are_wanted_with_what_kubectl_applies() -> None:
    def made(*words: str) -> dict[tuple[str, str], Any]:
        return {(each["kind"], each["metadata"]["name"]): each for each in objects(template(*IMAGE, *words))}

    own = ("crd/computedomains.yaml", "dra/domainclass.yaml", "rbac/compute-domains.yaml")
    applied = [each for path in own for each in objects(DEPLOY.joinpath(path).read_text())]
    without, found = made(), made("--set", "dra.computeDomains=true")
    assert {*found} - {*without} == {(each["kind"], each["metadata"]["name"]) for each in applied}
    for each in applied:
        there = found[each["kind"], each["metadata"]["name"]]
        assert (there.get("spec"), there.get("rules")) == (each.get("spec"), each.get("rules"))
    for rendered, is_served in ((without, False), (found, True)):
        controller = rendered["Deployment", "grapnel-controller"]["spec"]["template"]["spec"]["containers"][0]
        assert ("--compute-domains" in controller["args"]) is is_served
    (group,) = found["ClusterRoleBinding", "grapnel-node-compute-domains"]["subjects"]
    assert (group["kind"], group["name"]) == ("Group", "system:nodes")


@pytest.mark.parametrize("name", ["", "example.com/gpu"])
def test_the_resource_that_stands_for_a_claim_is_another_one_or_none(name: str) -> None:
    found = device_classes("--set", "dra.deviceClasses=true", "--set", f"dra.extendedResourceName={name}")

    assert found["gpu.nvidia.com"].get("extendedResourceName", "") == name
    assert "extendedResourceName" not in found["mig.nvidia.com"]


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
