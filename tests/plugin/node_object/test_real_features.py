"""A NodeFeature object on a real API server: what is kept of it, who may write it, and what is said otherwise."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plugin.publication.labels.features import make_features
from tests.plugin.daemon_process import REPOSITORY
from tests.plugin.labels.nodes import HOST, a100, inventory_of
from tests.plugin.node_object.pod_account import LABELS as DAEMONS_LABELS
from tests.plugin.node_object.pod_account import Account, account_on, with_token
from tests.plugin.node_object.real_cluster import Running, register, service_account
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # etcd and an API server

NAMESPACE = "node-feature-discovery"
PODS = "gpus"  # the namespace of the daemon's pods
LABELS = {"nvidia.com/gpu.count": "2", "grapnel.dev/gpu.ecc": "enabled"}
OBJECT = {
    "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
    "kind": "NodeFeature",
    "spec": {"labels": {"nvidia.com/gpu.count": "8"}},
}
FEATURES = make_features(inventory_of([a100(0), a100(1)]), HOST)


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server that knows NodeFeatures, and kubelets that may write them."""
    crd = str(Path(__file__).with_name("nodefeatures.yaml"))
    control_plane.kubectl(["apply", "-f", crd])
    control_plane.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "-f", crd])
    control_plane.ensure_namespace(NAMESPACE)
    control_plane.kubectl(["apply", "-f", str(REPOSITORY / "deploy/rbac/node-feature.yaml")])
    binding = ["rolebinding", "kubelets", f"--namespace={NAMESPACE}"]
    control_plane.kubectl(["create", *binding, "--clusterrole=grapnel-node-feature", "--group=system:nodes"])
    wait_until(lambda: is_guarded(control_plane), lambda: "the policy is not in force")
    yield control_plane
    control_plane.kubectl(["delete", "namespace", NAMESPACE, "--wait=false"])
    control_plane.kubectl(["delete", "-f", crd, "-f", str(REPOSITORY / "deploy/rbac/node-feature.yaml")])


def is_guarded(control_plane: ControlPlane) -> bool:
    """Whether the policy is in force: the API server takes seconds."""
    body = {**OBJECT, "metadata": {"name": "anybody", "namespace": NAMESPACE}}
    who = ["--as=system:node:somebody", "--as-group=system:nodes", "--dry-run=server"]
    program = [str(control_plane.programs / "kubectl"), f"--kubeconfig={control_plane.kubeconfig}", "create", "-f", "-"]
    done = subprocess.run([*program, *who], input=json.dumps(body), capture_output=True, text=True, check=False)
    return "its own node's features alone" in done.stderr


def feature(control_plane: ControlPlane, node: str) -> dict[str, Any]:
    """Return the object of a node, {} where there is none."""
    path = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures/nvidia-features-for-{node}"
    return control_plane.api.get(path) or {}


def test_the_server_keeps_all_that_is_said(served: ControlPlane, node: str, tmp_path: Path) -> None:
    with Running(served, node, tmp_path) as running:
        running.node.feature(NAMESPACE, LABELS, FEATURES)
        running.wait(lambda: bool(feature(served, node)))
        made = feature(served, node)
        assert made["spec"]["labels"] == LABELS
        gpus = made["spec"]["features"]["instances"]["grapnel.gpu"]["elements"]
        assert [each["attributes"] for each in gpus] == list(FEATURES.instances["grapnel.gpu"])
        driver = made["spec"]["features"]["attributes"]["grapnel.driver"]["elements"]
        assert driver == FEATURES.attributes["grapnel.driver"]
        assert made["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": node}
        owner = made["metadata"]["ownerReferences"]
        assert [(each["kind"], each["uid"]) for each in owner] == [("Node", running.read()["metadata"]["uid"])]
        running.node.feature("", {}, None)
        running.wait(lambda: feature(served, node)["spec"] == {"features": {"flags": {}}})
        running.node.feature(NAMESPACE, LABELS, FEATURES._replace(attributes={"grapnel.driver": {}}))
        running.wait(lambda: feature(served, node)["spec"].get("labels") == LABELS)
        assert not running.logger.lines("level=warning")


def test_labels_that_are_gone_are_gone_from_the_object(served: ControlPlane, node: str, tmp_path: Path) -> None:
    with Running(served, node, tmp_path) as running:
        running.node.feature(NAMESPACE, LABELS, FEATURES)
        running.wait(lambda: bool(feature(served, node)))
        running.node.feature(NAMESPACE, {"nvidia.com/gpu.count": "1"}, FEATURES)
        running.wait(lambda: feature(served, node)["spec"]["labels"] == {"nvidia.com/gpu.count": "1"})


def test_one_that_feature_discovery_keeps_is_left_to_it(served: ControlPlane, node: str, tmp_path: Path) -> None:
    body = {**OBJECT, "metadata": {"name": f"nvidia-features-for-{node}", "namespace": NAMESPACE}}
    served.kubectl(["create", "-f", "-", "--field-manager=gpu-feature-discovery"], input_text=json.dumps(body))
    with Running(served, node, tmp_path) as running:
        running.node.feature(NAMESPACE, LABELS, FEATURES)
        running.wait(lambda: bool(running.logger.lines("somebody else's")))
        assert feature(served, node)["spec"]["labels"] == {"nvidia.com/gpu.count": "8"}
        assert "gpu-feature-discovery" in running.logger.text()


@pytest.mark.parametrize(
    ("whose", "answer"),
    [
        pytest.param(("NODE", "NODE"), "created", id="its own"),
        pytest.param(("other", "other"), "its own node's features alone", id="another one's"),
        pytest.param(("NODE", "other"), "features of its own node alone", id="under its own name for another one"),
    ],
)
def test_a_kubelet_writes_its_own_nodes_object_alone(
    served: ControlPlane, node: str, tmp_path: Path, whose: tuple[str, str], answer: str
) -> None:
    kubeconfig = tmp_path / "kubelet.conf"
    kubeconfig.write_text(served.render_kubeconfig(served.certificates.prepare_node(node)))
    name, labelled = (each.replace("NODE", node) for each in whose)
    labels = {"nfd.node.kubernetes.io/node-name": labelled}
    body = {**OBJECT, "metadata": {"name": f"nvidia-features-for-{name}", "namespace": NAMESPACE, "labels": labels}}

    program = [str(served.programs / "kubectl"), f"--kubeconfig={kubeconfig}", "create", "-f", "-"]
    done = subprocess.run(program, input=json.dumps(body), capture_output=True, text=True, check=False)
    assert answer in done.stdout + done.stderr


@pytest.fixture(scope="module")
def pod(served: ControlPlane) -> Iterator[Account]:
    """The token of the daemon as a pod in a namespace of somebody's own, on the node `featured`."""
    register(served, "featured")
    served.kubectl(["create", "namespace", PODS])
    served.kubectl(["create", "serviceaccount", "grapnel-node", "--namespace", PODS])
    served.kubectl(["apply", "-f", str(REPOSITORY / "deploy/rbac/node.yaml")])
    account = f"--serviceaccount={PODS}:grapnel-node"
    served.kubectl(["create", "clusterrolebinding", "of-pods", "--clusterrole=grapnel-node", account])
    binding = ["rolebinding", "of-pods", f"--namespace={NAMESPACE}", "--clusterrole=grapnel-node-feature", account]
    served.kubectl(["create", *binding])
    yield Account(served, "featured", account_on(served, "featured", PODS))
    served.kubectl(["delete", "clusterrolebinding", "of-pods"])
    served.kubectl(["delete", "pod", "on-featured", "--namespace", PODS, "--force", "--grace-period=0"])
    served.kubectl(["delete", "namespace", PODS, "--wait=false"])
    served.kubectl(["delete", "node", "featured"])


def test_a_pod_writes_its_own_nodes_object(served: ControlPlane, pod: Account, tmp_path: Path) -> None:
    with Running(served, pod.node, tmp_path, pod.kubeconfig) as running:
        for labels in DAEMONS_LABELS:
            running.node.feature(NAMESPACE, labels, FEATURES)
            running.wait(lambda labels=labels: feature(served, pod.node).get("spec", {}).get("labels") == labels)
        running.node.feature("", {}, None)
        running.wait(lambda: feature(served, pod.node)["spec"] == {"features": {"flags": {}}})
        assert not running.logger.lines("level=warning")


@pytest.mark.parametrize("who", ["kubelet", "pod", "a token of no pod"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            {"metadata": {"name": "nvidia-features-for-other"}}, "its own node's features alone", id="another"
        ),
        pytest.param({"spec": {"labels": {"topology.example.com/domain": "b"}}}, "labels of its own", id="a domain"),
        pytest.param({"spec": {"labels": {"nvidia.com/mig.config": "x"}}}, "labels of its own", id="a layout"),
        pytest.param(
            {"spec": {"features": {"attributes": {"system.name": {"elements": {"nodename": "b"}}}}}},
            "features of its own alone",
            id="a feature of another source",
        ),
        pytest.param(
            {"spec": {"features": {"flags": {"cpu.cpuid": {"elements": {"AVX": {}}}}}}},
            "features of its own alone",
            id="a flag",
        ),
    ],
)
def test_a_daemons_object_says_nothing_else(
    served: ControlPlane, pod: Account, who: str, change: dict[str, Any], why: str
) -> None:
    metadata = {"name": f"nvidia-features-for-{pod.node}", "labels": {"nfd.node.kubernetes.io/node-name": pod.node}}
    body = {**OBJECT, **change, "metadata": {**metadata, **change.get("metadata", {})}}
    if who == "kubelet":
        said = served_to_kubelet(served, pod.node, body)
    else:
        token = pod if who == "pod" else Account(served, pod.node, with_token(served, namespace=PODS))
        said = token.ask("POST", f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures", body)
    assert (why if who != "a token of no pod" else "grapnel-node-feature") in said, said


def served_to_kubelet(served: ControlPlane, node: str, body: object) -> str:
    """Return what is said to a kubelet that makes an object."""
    who = [f"--as=system:node:{node}", "--as-group=system:nodes", "--namespace", NAMESPACE]
    program = [str(served.programs / "kubectl"), f"--kubeconfig={served.kubeconfig}", "create", "-f", "-", *who]
    done = subprocess.run(program, input=json.dumps(body), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_pod_needs_the_role(served: ControlPlane, node: str, tmp_path: Path) -> None:
    with Running(served, node, tmp_path, service_account(served, "labels-only", "node")) as running:
        running.node.feature(NAMESPACE, LABELS, FEATURES)
        running.wait(lambda: bool(running.logger.lines("forbids patch nodefeatures")))
        assert "deploy/rbac" in running.logger.text()
    with Running(served, node, tmp_path, service_account(served, "with-features", "node", "node-feature")) as running:
        running.node.feature(NAMESPACE, LABELS, FEATURES)
        running.wait(lambda: bool(feature(served, node)))


def test_where_there_is_no_such_namespace_the_log_says_so(served: ControlPlane, node: str, tmp_path: Path) -> None:
    with Running(served, node, tmp_path) as running:
        running.node.feature("absent", LABELS, FEATURES)
        running.wait(lambda: bool(running.logger.lines("absent")))
