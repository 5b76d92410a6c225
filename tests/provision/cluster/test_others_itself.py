"""What other tools and people write to real Nodes, and kured's DaemonSet, seen through a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision.cluster.locks import LOCK
from provision.rollout.model import NodeView

if TYPE_CHECKING:
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
    labels = {"app": "kured"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "kured", "image": "x"}]}}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "kured", "annotations": {LOCK: json.dumps({"nodeID": node, "TTL": 0})}},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    stage.kubectl("create", "-f", "-", data=daemon_set)
    try:
        assert view(stage, node).held_by.startswith("kured has its lock for it, to reboot it")
        stage.kubectl("annotate", "daemonset", "kured", f"{LOCK}-")
        assert view(stage, node).held_by == ""
    finally:
        stage.kubectl("delete", "daemonset", "kured")
