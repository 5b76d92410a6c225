"""What other tools and people write to real Nodes, and kured's DaemonSet, seen through a real API server."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.kubernetes.nodes.locks import LOCK
from provision.rollout.model import NodeView
from tests.provision.cluster.stage import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional


def view(stage: Stage, node: str) -> NodeView:
    seen = stage.connect().observe([node])[node]
    assert isinstance(seen, NodeView)
    return seen


def test_what_kubectl_writes_is_read(stage: Stage) -> None:
    node = stage.make_node()
    assert (view(stage, node).held_by, view(stage, node).is_skipped, view(stage, node).priority) == ("", False, 0)

    stage.kubectl("label", "node", node, "nvidia.com/gpu-driver-upgrade.skip=true", "grapnel.dev/upgrade-priority=7")
    assert (view(stage, node).is_skipped, view(stage, node).priority) == (True, 7)

    stage.kubectl("taint", "node", node, "karpenter.sh/disrupted:NoSchedule")
    assert view(stage, node).held_by.startswith("Karpenter is about to replace it (taint karpenter.sh/disrupted)")
    stage.kubectl("taint", "node", node, "karpenter.sh/disrupted-")
    assert view(stage, node).held_by == ""

    patch = {
        "status": {"conditions": [{"type": "MaintenanceInProgress", "status": "True", "reason": "AdminRequested"}]}
    }
    stage.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(patch))
    assert "(condition MaintenanceInProgress, AdminRequested)" in view(stage, node).held_by


def test_the_lock_of_a_real_daemon_set_is_read(stage: Stage) -> None:
    node = stage.make_node()
    with kured(stage, "kube-system", node):
        assert view(stage, node).held_by.startswith("kured has its lock for it, to reboot it")
        stage.kubectl("annotate", "daemonset", "kured", "-n", "kube-system", f"{LOCK}-")
        assert view(stage, node).held_by == ""


def test_a_kured_that_has_the_processes_of_the_host_may_be_anywhere(stage: Stage) -> None:
    node = stage.make_node()
    stage.kubectl("create", "namespace", "reboots")
    with kured(stage, "reboots", node, hostPID=True):
        wait_until(lambda: view(stage, node).held_by.startswith("kured has its lock"), "its pods are there")


def test_whoever_calls_a_daemon_set_kured_holds_no_node(stage: Stage) -> None:
    """A DaemonSet of any namespace held every node that its annotation named, for as long as its author liked."""
    node = stage.make_node()
    stage.kubectl("create", "namespace", "team")
    stage.kubectl("label", "namespace", "team", "pod-security.kubernetes.io/enforce=baseline")
    with kured(stage, "team", node) as look:
        wait_until(lambda: look()["status"].get("updatedNumberScheduled", 0) > 0, "it has pods")
        assert view(stage, node).held_by == ""
    with kured(stage, "team", node, hostPID=True) as look:
        wait_until(lambda: look()["status"].get("observedGeneration") == 1, "its controller has looked at it")
        assert view(stage, node).held_by == "", "what it asks for is allowed to nobody there"


@contextmanager
def kured(stage: Stage, namespace: str, node: str, **spec: object) -> Iterator[Callable[[], Any]]:
    """Have a DaemonSet of that name, with the lock for a node, while inside."""
    labels = {"app": "kured"}
    pod = {"containers": [{"name": "kured", "image": "x"}], **spec}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "kured",
            "namespace": namespace,
            "annotations": {LOCK: json.dumps({"nodeID": node, "TTL": 0})},
        },
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    stage.kubectl("create", "-f", "-", data=daemon_set)
    try:
        yield lambda: stage.get("daemonset", "kured", "-n", namespace)
    finally:
        stage.kubectl("delete", "daemonset", "kured", "-n", namespace)
