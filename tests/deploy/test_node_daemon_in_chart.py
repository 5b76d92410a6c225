"""The chart's DaemonSet is the one that kubectl applies, with the values of the release: rendered by the real helm."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from lab import golang
from tasks.generated.chart import CHART, DEPLOY

pytestmark = pytest.mark.functional

VALUES = ("image.repository=example.com/grapnel", "image.tag=v1", "nodeDaemon.enabled=true")
IMAGE = "example.com/grapnel:v1"


def template(*values: str) -> subprocess.CompletedProcess[str]:
    helm = golang.helm(say=lambda _: None) / "helm"
    sets = [word for value in values for word in ("--set", value)]
    command = [str(helm), "template", "here", str(CHART), "--namespace", "gpus", *sets]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def objects(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = template(*VALUES, *values)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def of_kubectl() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "daemonset/grapnel-node.yaml").read_text())
    return next(dict(each) for each in documents if each["kind"] == "DaemonSet")


def test_by_default_it_is_what_kubectl_applies_in_the_releases_namespace() -> None:
    found = objects()
    made, expected = found["DaemonSet", "grapnel-node"], of_kubectl()
    assert made["metadata"]["namespace"] == "gpus"
    pod = expected["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        container["image"] = IMAGE
    pod["nodeSelector"] = made["spec"]["template"]["spec"]["nodeSelector"] or {}
    assert made["spec"] == expected["spec"]
    account = "system:serviceaccount:gpus:grapnel-node"
    for policy in ("grapnel-node", "grapnel-node-events"):
        (condition,) = found["ValidatingAdmissionPolicy", policy]["spec"]["matchConditions"]
        assert condition["expression"] == f'request.userInfo.username == "{account}"'
    assert found["ClusterRoleBinding", "grapnel-node"]["subjects"][0]["namespace"] == "gpus"
    assert ("ClusterRole", "grapnel-node") in found
    assert ("Namespace", "grapnel-system") not in found


def test_what_claims_take_is_there_where_they_are_declared_and_never_without_its_policy() -> None:
    named = "grapnel-node-claims"
    assert not [name for _, name in objects() if name in (named, "grapnel-node-slices")]
    found = objects("nodeDaemon.claims.enabled=true", "dra.slicePolicy=false")
    (condition,) = found["ValidatingAdmissionPolicy", named]["spec"]["matchConditions"]
    assert condition["expression"] == 'request.userInfo.username == "system:serviceaccount:gpus:grapnel-node"'
    assert found["ValidatingAdmissionPolicyBinding", named]["spec"]["validationActions"] == ["Deny"]
    for name in (named, "grapnel-node-slices"):
        assert found["ClusterRoleBinding", name]["subjects"][0]["namespace"] == "gpus"


def test_claims_of_few_namespaces_are_read_there_alone() -> None:
    done = template(*VALUES, "nodeDaemon.claims.enabled=true", "nodeDaemon.claims.namespaces={ml,web}")
    made = [each for each in yaml.safe_load_all(done.stdout) if each and "grapnel-node" in str(each.get("roleRef"))]
    bound = {(each["kind"], each["roleRef"]["name"], each["metadata"].get("namespace")) for each in made}
    assert bound == {
        ("ClusterRoleBinding", "grapnel-node", None),
        ("ClusterRoleBinding", "grapnel-node-slices", None),
        *(("RoleBinding", "grapnel-node-claims", name) for name in ("ml", "web")),
    }


def test_claims_without_the_api_are_refused() -> None:
    done = template(*VALUES, "nodeDaemon.claims.enabled=true", "nodeDaemon.kubernetesApi=false")
    assert done.returncode != 0
    assert "nodeDaemon.claims.enabled needs nodeDaemon.kubernetesApi" in done.stderr


def test_another_kubelet_and_driver_are_mounted_where_the_daemon_looks_for_them() -> None:
    made = objects("nodeDaemon.kubeletRoot=/data/kubelet", "nodeDaemon.driverRoot=/run/nvidia/driver")
    pod = made["DaemonSet", "grapnel-node"]["spec"]["template"]["spec"]
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    assert paths["usr"] == "/run/nvidia/driver/usr"
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    for name, folder in (("device-plugins", "device-plugins"), ("plugins-registry", "plugins_registry")):
        assert paths[name] == mounts[name] == f"/data/kubelet/{folder}"


def test_it_may_have_an_image_of_its_own() -> None:
    other = "example.com/another@sha256:" + "0" * 64
    made = objects(f"nodeDaemon.image={other}")
    pod = made["DaemonSet", "grapnel-node"]["spec"]["template"]["spec"]
    assert {container["image"] for container in (*pod["initContainers"], *pod["containers"])} == {other}
    (controller,) = made["Deployment", "grapnel-controller"]["spec"]["template"]["spec"]["containers"]
    assert controller["image"] == IMAGE


def test_without_being_enabled_there_is_none() -> None:
    assert "kind: DaemonSet" not in template(VALUES[0]).stdout
