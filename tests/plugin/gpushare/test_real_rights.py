"""What the extender's account may do on a real API server: what the extender does, and nothing else to a pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.cluster import ControlPlane
from plugin.base.errors import ClusterError
from plugin.gpushare import requests
from plugin.gpushare.books import pod_annotations
from plugin.gpushare.books.model import RESOURCE
from plugin.gpushare.books.objects import parse_pod
from plugin.gpushare.connections import Connections
from plugin.publication.node_object.api.messages import JSON, Request
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugin.gpushare.books.model import Pod

pytestmark = pytest.mark.functional  # etcd and an API server

FOLDER = Path(__file__).parents[3] / "deploy/gpushare"
ACCOUNT = "grapnel-gpushare"
NODE_LABELS = {"topology.kubernetes.io/zone": "a"}  # which the API server itself puts on pods that are bound
STRATEGIC = "application/strategic-merge-patch+json"
OURS = dict.fromkeys((*pod_annotations.OURS, pod_annotations.ROOM_SINCE), "1")


class Cluster:
    """A control plane with a Node, pods that nobody places, and the extender's account."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane
        self.numbers = iter(range(1000))
        self._account: Connections | None = None

    def kubectl(self, *arguments: str, body: object = None) -> str:
        return self.control_plane.kubectl(arguments, input_text=None if body is None else json.dumps(body))

    def pod(self) -> Pod:
        """Make a pod that waits for a node."""
        name = f"p{next(self.numbers)}"
        container = {"name": "c0", "image": "theirs", "resources": {"limits": {RESOURCE: "1"}}}
        metadata = {"name": name, "labels": {"app": "theirs"}, "annotations": {"example.com/theirs": "x"}}
        spec = {"containers": [container], "schedulerName": "nobody"}
        self.kubectl("create", "-f", "-", body={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        found = parse_pod(self.read(name), RESOURCE)
        assert found is not None
        return found

    def read(self, name: str) -> dict[str, Any]:
        return self.control_plane.api.read(f"/api/v1/namespaces/default/pods/{name}")

    def follow(self, kubeconfig: Path) -> Connections:
        self._account = Connections(str(kubeconfig), {})
        return self._account

    def ask(self, request: Request) -> str:
        """Ask as the extender; return "" where it was done, else what the API server said."""
        assert self._account is not None
        try:
            self._account.call(request)
        except ClusterError as error:
            return error.message
        return ""

    def patch(self, pod: Pod, patch: object) -> str:
        path = f"/api/v1/namespaces/default/pods/{pod.name}"
        return self.ask(Request("PATCH", path, "patch", "pods", STRATEGIC, json.dumps(patch).encode()))

    def bind(self, pod: Pod, **metadata: object) -> str:
        body = json.loads(requests.bind(pod, "n1", {}).body)
        body["metadata"] |= metadata
        path = f"/api/v1/namespaces/default/pods/{pod.name}/binding"
        return self.ask(Request("POST", path, "create", "pods/binding", JSON, json.dumps(body).encode()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(folder).running() as control_plane:
        made = Cluster(control_plane)
        made.kubectl(
            "create",
            "-f",
            "-",
            body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": NODE_LABELS}},
        )
        made.kubectl("create", "serviceaccount", ACCOUNT, "--namespace", "kube-system")
        made.kubectl("apply", "-f", str(FOLDER / "rbac.yaml"))
        subject = f"--serviceaccount=kube-system:{ACCOUNT}"
        made.kubectl("create", "clusterrolebinding", ACCOUNT, f"--clusterrole={ACCOUNT}", subject)
        config = json.loads(control_plane.kubeconfig.read_text())
        token = made.kubectl("create", "token", ACCOUNT, "--namespace", "kube-system").strip()
        config["users"][0]["user"] = {"token": token}
        path = folder / "extender.conf"
        path.write_text(json.dumps(config))
        account = made.follow(path)
        pod = made.pod()  # the policy takes seconds to be in force
        numbers = iter(range(1000))
        wait_until(
            lambda: "of its own alone" in made.patch(pod, {"metadata": {"annotations": {"x": str(next(numbers))}}})
        )
        yield made
        account.close()


def test_what_the_extender_does_is_done(cluster: Cluster) -> None:
    pod = cluster.pod()
    assert not cluster.ask(requests.annotate(pod, {pod_annotations.ROOM_SINCE: "1"}))
    assert not cluster.ask(requests.bind(pod, "n1", OURS))
    found = cluster.read(pod.name)
    assert found["spec"]["nodeName"] == "n1"
    assert OURS.items() <= found["metadata"]["annotations"].items()
    assert not cluster.ask(requests.annotate(pod, {**OURS, pod_annotations.INDEX: "2", pod_annotations.OF_CARD: None}))
    annotations = cluster.read(pod.name)["metadata"]["annotations"]
    assert (annotations[pod_annotations.INDEX], pod_annotations.OF_CARD in annotations) == ("2", False)
    assert annotations["example.com/theirs"] == "x"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        pytest.param({"spec": {"containers": [{"name": "c0", "image": "ours"}]}}, "nothing of a pod but", id="image"),
        pytest.param({"spec": {"activeDeadlineSeconds": 1}}, "nothing of a pod but annotations", id="deadline"),
        pytest.param({"metadata": {"labels": {"app": "ours"}}}, "metadata but annotations", id="a label"),
        pytest.param({"metadata": {"labels": None}}, "metadata but annotations", id="no labels"),
        pytest.param({"metadata": {"finalizers": ["example.com/kept"]}}, "metadata but annotations", id="a finalizer"),
        pytest.param({"metadata": {"annotations": {"example.com/theirs": "y"}}}, "of its own alone", id="annotation"),
        pytest.param({"metadata": {"annotations": None}}, "of its own alone", id="no annotations"),
        pytest.param({"metadata": {"annotations": {"grapnel.dev/allocation": "x"}}}, "of its own alone", id="a proof"),
    ],
)
def test_a_pod_is_not_changed_otherwise(cluster: Cluster, patch: object, why: str) -> None:
    assert why in cluster.patch(cluster.pod(), patch)


def test_nothing_else_comes_with_a_binding(cluster: Cluster) -> None:
    pod = cluster.pod()
    assert "of its own alone" in cluster.bind(pod, annotations={"example.com/theirs": "y"})
    assert "with nothing else" in cluster.bind(pod, labels={"app": "ours"})
    assert "nodeName" not in cluster.read(pod.name)["spec"]


def test_the_daemon_set_is_one_that_the_api_server_takes(cluster: Cluster) -> None:
    said = cluster.kubectl("apply", "--dry-run=server", "-f", str(FOLDER / "deployment.yaml"))
    assert "daemonset.apps/grapnel-gpushare created" in said


def test_the_api_server_finds_no_fault_with_the_policy(cluster: Cluster) -> None:
    def status() -> dict[str, Any]:
        found = json.loads(cluster.kubectl("get", "validatingadmissionpolicy", ACCOUNT, "-o", "json"))
        return dict(found.get("status", {}))

    wait_until(lambda: "observedGeneration" in status())
    assert not status().get("typeChecking", {}).get("expressionWarnings")
