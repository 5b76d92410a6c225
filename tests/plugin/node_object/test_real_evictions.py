"""Evictions on a real API server: of pods of this node alone, of the one that was meant, as its budget allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugin.sharing.overuse.keeper import Pod
from tests.plugin.node_object.real_cluster import Running, service_account

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # etcd and an API server


def make_pod(control_plane: ControlPlane, name: str, node: str) -> str:
    """Make a pod that is bound to a node, and return its uid."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }
    control_plane.api.create("/api/v1/namespaces/default/pods", body)
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    control_plane.api.merge(f"/api/v1/namespaces/default/pods/{name}/status", status)
    return str(read(control_plane, name)["metadata"]["uid"])


def read(control_plane: ControlPlane, name: str) -> dict[str, Any]:
    """Return a pod, empty when it has gone."""
    listed = control_plane.api.read(f"/api/v1/namespaces/default/pods?fieldSelector=metadata.name={name}")
    found: dict[str, Any] = next(iter(listed["items"]), {})
    return found


def goes(control_plane: ControlPlane, name: str) -> bool:
    found = read(control_plane, name)
    return not found or "deletionTimestamp" in found["metadata"]


def evict(running: Running, name: str, uid: str) -> None:
    running.node.evict((Pod("default", name, uid, "container main uses too much"),))


def test_a_kubelet_evicts_a_pod_of_its_node(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    uid = make_pod(control_plane, f"{node}-own", node)
    with Running(control_plane, node, tmp_path) as running:
        evict(running, f"{node}-own", uid)
        running.wait(lambda: goes(control_plane, f"{node}-own"))
        running.wait(lambda: [each["reason"] for each in running.events()] == ["GPUMemoryPodEvicted"])
        assert f"{node}-own" in running.logger.text()


def test_a_pod_of_another_node_is_not_evicted(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    uid = make_pod(control_plane, f"{node}-others", "another-node")
    with Running(control_plane, node, tmp_path) as running:
        evict(running, f"{node}-others", uid)
        running.wait(lambda: bool(running.logger.lines("forbids create pods/eviction")))
        assert not goes(control_plane, f"{node}-others")
    control_plane.kubectl(["delete", "pod", f"{node}-others", "--force", "--grace-period=0"])


def test_another_pod_of_the_same_name_is_not_evicted(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    make_pod(control_plane, f"{node}-same", node)
    with Running(control_plane, node, tmp_path) as running:
        evict(running, f"{node}-same", "7f8e9d6c-0000-4000-8000-000000000000")
        running.wait(lambda: bool(running.logger.lines("refuses create pods/eviction (409)")))
        assert not goes(control_plane, f"{node}-same")


def test_a_budget_is_respected_and_told(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    name = f"{node}-guarded"
    uid = make_pod(control_plane, name, node)
    budget = ["create", "poddisruptionbudget", name, f"--selector=app={name}", "--min-available=1"]
    control_plane.kubectl(budget)
    with Running(control_plane, node, tmp_path) as running:
        evict(running, name, uid)
        running.wait(lambda: bool(running.logger.lines("refuses create pods/eviction (429)")))
        assert not goes(control_plane, name)
        assert name in running.logger.text()
    control_plane.kubectl(["delete", "poddisruptionbudget", name])


def test_the_role_of_a_pod_does_not_evict(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    uid = make_pod(control_plane, f"{node}-role", node)
    kubeconfig = service_account(control_plane, "no-evictions", "node")
    with Running(control_plane, node, tmp_path, kubeconfig) as running:
        evict(running, f"{node}-role", uid)
        running.wait(lambda: bool(running.logger.lines("forbids create pods/eviction")))
        assert not goes(control_plane, f"{node}-role")
