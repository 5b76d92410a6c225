"""The DaemonSet of the node daemon on one node of the stage, with the product's image of this checkout."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import yaml

from tests.e2e import controller_image
from tests.e2e.api import is_ready
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Cluster
    from tests.e2e.stage import LabNode, Stage

ROOT: Final = Path(__file__).parents[2]
ROLE: Final = ROOT / "deploy/rbac/node.yaml"
CLAIMS_ROLE: Final = ROOT / "deploy/rbac/node-claims.yaml"
MANIFEST: Final = ROOT / "deploy/daemonset/grapnel-node.yaml"
NAMESPACE: Final = "grapnel-system"
SELECTOR: Final = "app.kubernetes.io/name=grapnel-node"


def manifests(node: str, server: str) -> dict[str, Any]:
    """Return the file's objects for one node, with the image.

    ``server`` is the API server's URL: the stage has nothing that forwards the address of the service `kubernetes`.
    """
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    pod = next(each for each in documents if each["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms[0]["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    place = urlsplit(server)
    found = {"KUBERNETES_SERVICE_HOST": place.hostname, "KUBERNETES_SERVICE_PORT": str(place.port)}
    variables = [{"name": name, "value": value} for name, value in found.items()]
    for container in pod["containers"]:
        del container["resources"]["requests"]["cpu"]  # with the reserved one, a machine of two CPUs has one to give
    for container in (*pod["initContainers"], *pod["containers"]):
        container["image"] = controller_image.REFERENCE
        container["env"] = [*container["env"], *variables]
    return {"apiVersion": "v1", "kind": "List", "items": documents}


@contextmanager
def installed(cluster: Cluster, stage: Stage, node: LabNode) -> Iterator[None]:
    """Have the DaemonSet on a node that has the image while inside; what it said of the Node goes with it."""
    server = json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    wanted = manifests(node.name, server)
    if cluster.kubectl(["get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "name"]).strip():
        wanted["items"] = [each for each in wanted["items"] if each["kind"] != "Namespace"]  # it stays to who made it
    text = json.dumps(wanted)
    cluster.kubectl(["apply", "-f", str(ROLE)])
    cluster.kubectl(["apply", "-f", "-"], input_text=text)
    try:
        wait_for("there is a pod of the daemon", lambda: stage.api.pods(NAMESPACE, SELECTOR))
        yield
    finally:
        cluster.kubectl(["delete", "--ignore-not-found", "-f", "-"], input_text=text)
        cluster.kubectl(["delete", "--ignore-not-found", "-f", str(ROLE)])
        forget(cluster, stage, node)


def replace(cluster: Cluster) -> None:
    """Have each pod replaced, as another version of it is."""
    cluster.kubectl(["rollout", "restart", "daemonset/grapnel-node", "--namespace", NAMESPACE])


def forget(cluster: Cluster, stage: Stage, node: LabNode) -> None:
    """Take the daemon's labels off the Node: a node that goes into service again has them from the next daemon."""
    labels = [name for name in stage.api.node(node.name).metadata.labels if name.startswith("nvidia.com/")]
    if labels:
        cluster.kubectl(["label", "node", node.name, *(f"{name}-" for name in labels)])


def daemon_pod(stage: Stage) -> str:
    """Return the name of the pod that has the node."""

    def ready() -> str:
        pods = [pod for pod in stage.api.pods(NAMESPACE, SELECTOR) if is_ready(pod)]
        return str(pods[0].metadata.name) if pods else ""

    return wait_for("the daemon's pod is ready", ready, evidence=lambda: stage.evidence(namespace=NAMESPACE))
