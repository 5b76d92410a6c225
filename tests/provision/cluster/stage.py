"""Simulates the rest of a cluster around a real API server: nodes without machines, pods whose kubelet is the test."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any

from provision.cluster import PodRules, connect
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.nodes.others import EVERYTHING, Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lab.cluster import ControlPlane
    from provision.cluster import Machine

GPU = "nvidia.com/gpu"
GPU_RULES = PodRules(resources=frozenset({GPU}))
READY = [{"type": "Ready", "status": "True"}]
# Where the objects are that tests look at again and again while they wait.
PATHS = {
    "node": "/api/v1/nodes",
    "pod": "/api/v1/namespaces/{}/pods",
    "resourcequota": "/api/v1/namespaces/{}/resourcequotas",
    "lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "daemonset": "/apis/apps/v1/namespaces/{}/daemonsets",
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "pdb": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "resourceclaim": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
    "gpustack": "/apis/grapnel.dev/v1alpha1/gpustacks",
}
NODE_INFO = (
    *("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"),
    *("operatingSystem", "architecture", "osImage", "systemUUID"),
)


def path_of(kind: str, name: str = "", namespace: str = "default") -> str:
    """Return where an object is, or its list."""
    return f"{PATHS[kind].format(namespace)}/{name}".removesuffix("/")


class Stage:
    """A control plane, and what tests do to it as its administrator."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane
        self._numbers = itertools.count(1)

    def kubectl(self, *arguments: str, data: object = None) -> str:
        """Run kubectl as the administrator, with ``data`` as JSON on standard input."""
        text = None if data is None else json.dumps(data)
        return self.control_plane.kubectl(arguments, input_text=text)

    def get(self, *arguments: str) -> Any:
        """Return an object; the arguments are those of ``kubectl get``, whose process takes a tenth of a second."""
        match arguments:
            case (kind, name) if kind in PATHS:
                return self.read(path_of(kind, name))
            case (kind, name, "-n" | "--namespace", namespace) if kind in PATHS:
                return self.read(path_of(kind, name, namespace))
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def read(self, path: str) -> dict[str, Any]:
        """Return what the API server has at a path; ``ClusterError`` if it is not there."""
        return self.control_plane.api.read(path)

    def create(self, made: dict[str, Any]) -> None:
        """Make a Node, or a pod of the default namespace; ``kubectl create`` takes a tenth of a second for the same."""
        self.control_plane.api.create(path_of(made["kind"].lower()), made)

    def end_pod(self, pod: str) -> None:
        """Delete a pod of the default namespace at once, if it is there."""
        if self.control_plane.api.get(path_of("pod", pod)) is not None:
            self.control_plane.api.delete(path_of("pod", pod), gracePeriodSeconds=0)

    def connect(
        self,
        kubeconfig: Path | None = None,
        *,
        machines: Mapping[str, Machine] | None = None,
        rules: PodRules = GPU_RULES,
        asked: Asked = EVERYTHING,
    ) -> KubernetesCluster:
        """Connect with a kubeconfig, by default the administrator's."""
        cluster = connect(
            kubeconfig or self.control_plane.kubeconfig,
            None,
            {},
            state_file=self.control_plane.folder / "state_file.json",
            rules=rules,
            machines=machines or {},
            asked=asked,
        )
        assert isinstance(cluster, KubernetesCluster)
        return cluster

    def make_node(self, *, address: str = "", machine_id: str = "", **labels: str) -> str:
        """Make a ready node with a name that no other test uses; return the name."""
        name = f"node-{next(self._numbers)}"
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {
                "capacity": {GPU: "4"},
                "allocatable": {GPU: "4", "pods": "100"},
                "conditions": READY,
                "addresses": [{"type": "InternalIP", "address": address}] if address else [],
                "nodeInfo": {"machineID": machine_id, **dict.fromkeys(NODE_INFO, "")},
            },
        }
        self.create(node)
        return name

    def define(self, definition: Path) -> None:
        """Make a kind of objects known; return when it is served."""
        self.kubectl("apply", "-f", str(definition))
        self.wait_established("-f", str(definition))

    def wait_established(self, *which: str) -> None:
        """Return when definitions are served; `kubectl wait` fails on one that has no conditions yet."""
        wait_until(lambda: self._is_served(which), f"{' '.join(which)} is served")

    def _is_served(self, which: Sequence[str]) -> bool:
        found = self.get(*which)
        return all(
            any(
                each["type"] == "Established" and each["status"] == "True"
                for each in one.get("status", {}).get("conditions") or ()
            )
            for one in found.get("items", [found])
        )

    def make_pod(self, node: str, *, name: str = "", gpus: str = "1", labels: Mapping[str, str] | None = None) -> str:
        """Make a pod that is bound to ``node`` already; return its name."""
        name = name or f"pod-{next(self._numbers)}"
        resources = {"limits": {GPU: gpus}} if gpus else {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x", "resources": resources}]},
        }
        self.create(pod)
        return name

    def set_pod_status(self, pod: str, status: Mapping[str, Any]) -> None:
        """Act as the pod's kubelet."""
        self.control_plane.api.merge(f"{path_of('pod', pod)}/status", {"status": status})

    def set_node_status(self, node: str, status: Mapping[str, Any]) -> None:
        """Act as the node's kubelet."""
        self.control_plane.api.merge(f"{path_of('node', node)}/status", {"status": status})

    def run_pod(self, pod: str) -> None:
        """Say that the pod runs and is ready."""
        self.set_pod_status(pod, {"phase": "Running", "conditions": READY})


def wait_until(
    is_true: Callable[[], bool], what: str, timeout_s: float = 60.0, *, explain: Callable[[], str] = str
) -> None:
    """Wait; fail with ``what`` was waited for, and what ``explain`` says of the state it is in instead."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}\n{explain()}".rstrip()
        time.sleep(0.1)
