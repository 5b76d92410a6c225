"""What an uninstallation reads of the controller's Deployment, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.cluster.connect import open_api
from provision.controller.uninstall.workload import Workload
from tests.provision.cluster.stage import wait_until

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional


def test_a_mirror_pod_with_the_labels_of_the_controller_is_not_its_own(stage: Stage) -> None:
    """An uninstallation waited for it, and told its words, since the kubelet of any node may write such a pod."""
    namespace, node = "uninstalled-here", stage.make_node()
    stage.kubectl("create", "namespace", namespace)
    labels = {"app": "grapnel-controller"}
    nowhere = {"containers": [{"name": "main", "image": "x"}], "nodeSelector": {"nobody": "here"}}  # it ends at once
    template = {"metadata": {"labels": labels}, "spec": nowhere}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "controller", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    stage.kubectl("create", "-f", "-", data=deployment)
    uid = stage.get("node", node)["metadata"]["uid"]
    mirror = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "mirror",
            "namespace": namespace,
            "labels": labels,
            "annotations": {"kubernetes.io/config.mirror": "0123456789abcdef"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x"}]},
    }
    stage.kubectl("create", "-f", "-", f"--as=system:node:{node}", "--as-group=system:nodes", data=mirror)
    api = open_api(stage.control_plane.kubeconfig, None, {})
    assert api is not None
    workload = Workload(api, namespace, "controller")

    def found() -> list[str]:
        deployment = workload.find()
        assert deployment is not None
        return [each.metadata.name for each in workload.pods(deployment)]

    wait_until(lambda: any(name.startswith("controller-") for name in found()), "the Deployment has its pod")
    assert "mirror" not in found()
    workload.end()
    wait_until(lambda: not found(), "no pod of the controller is left")
    assert stage.get("pod", "mirror", "-n", namespace)["metadata"].get("deletionTimestamp") is None
