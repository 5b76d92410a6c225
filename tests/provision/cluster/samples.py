"""Values for tests of node state."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.pods.gpu_pods import Claims, NodePods, PodUse, node_pods, pod_use, unknown
from provision.rollout.model import Phase, Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.cluster.kubernetes.pods.pod_rules import PodRules

CONTRACT = Path(__file__).parents[3] / "docs" / "contracts" / "node-state"
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
RECORD = Record(phase=Phase.DRAIN, target="535.309.01", origin="535.261.03", began=NOW, since=NOW)


def node(name: str, *addresses: str, machine_id: str = "", **labels: str) -> Node:
    """Return a Node as the API server gives it."""
    status = {
        "addresses": [
            {"type": "Hostname", "address": name},
            *({"type": "InternalIP", "address": each} for each in addresses),
        ],
        "nodeInfo": {"machineID": machine_id},
    }
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


def pod(name: str = "web", **changes: Any) -> Pod:
    """Return a Pod on n1 without a GPU; ``metadata``, ``spec`` and ``status`` are added to."""
    whole = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"} | changes.get("metadata", {}),
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]} | changes.get("spec", {}),
        "status": {"phase": "Running"} | changes.get("status", {}),
    }
    return msgspec.convert(whole, Pod)


def container(**resources: dict[str, str]) -> dict[str, Any]:
    """Return a container with these ``requests`` or ``limits``."""
    return {"name": "main", "image": "x", "resources": resources}


def pods_of_nodes(pods: Iterable[Pod], rules: PodRules, claims: Claims = unknown) -> dict[str, NodePods]:
    """Return the pods that matter, by node. ``claims``: see `pod_use`."""
    found: dict[str, list[PodUse]] = {}
    for pod in pods:
        if (use := pod_use(pod, rules, claims)) is not None:
            found.setdefault(use.node, []).append(use)
    return {node: node_pods(uses) for node, uses in found.items()}
