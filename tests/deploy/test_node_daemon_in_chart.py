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
