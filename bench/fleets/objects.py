"""What is in the cluster: Nodes of the size that real ones have, their pods, and the stack of all. Pure."""

from __future__ import annotations

from typing import Any, Final

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
STACKS: Final = "/apis/grapnel.dev/v1alpha1/gpustacks"
NAMESPACE: Final = "work"
OLD, NEW = "535.261.03", "550.163.01"
FAULTY: Final = 20  # one node of so many keeps failing
GPU: Final = "nvidia.com/gpu"
IMAGES: Final = 50  # as many as a kubelet reports by default (nodeStatusMaxImages)
LABELS: Final = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(60)}
INFO: Final = (
    *("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID"),
    *("operatingSystem", "architecture", "osImage", "systemUUID"),
)
CONDITIONS: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def names_of(count: int) -> list[str]:
    """Return the names of a fleet's Nodes."""
    return [f"n{number:05}" for number in range(count)]


def is_faulty(node: str) -> bool:
    """Tell whether the new driver never comes up on a node."""
    return int(node[1:]) % FAULTY == 0


def node(name: str, kubelet_port: int = 0) -> dict[str, Any]:
    """Return a Node as feature discovery and its kubelet would leave it; the port is where its logs are asked for."""
    conditions = [{"type": kind, "status": str(kind == "Ready"), "reason": "Kubelet"} for kind in CONDITIONS]
    images = [{"names": _names(number), "sizeBytes": 100_000_000 + number} for number in range(IMAGES)]
    status: dict[str, Any] = {
        "phase": "Running",  # which KWOK's heartbeats wait for
        "conditions": conditions,
        "images": images,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        "nodeInfo": dict.fromkeys(INFO, "") | {"bootID": "0"},
        "capacity": {GPU: "8", "pods": "110", "cpu": "128", "memory": "1Ti"},
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}, "status": status}


def _names(number: int) -> list[str]:
    repository = f"registry.example.com/team-{number % 7}/application-{number}"
    return [f"{repository}@sha256:{number:064x}", f"{repository}:v1.{number}.0"]


def pod(node: str, number: int) -> dict[str, Any]:
    """Return a pod that is bound to a node already; the first of a node has a GPU."""
    limits = {GPU: "1"} if number == 0 else {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "main", "image": "registry.example.com/team/application:v1", "resources": {"limits": limits}}
    environment = [{"name": f"SETTING_{each}", "value": f"value of setting {each}"} for each in range(12)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{node}-{number}", "namespace": NAMESPACE, "labels": {"app": f"application-{number}"}},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container | {"env": environment}],
        },
    }


def stack(version: str, *, out: str = "20%", parallel: int = 50) -> dict[str, Any]:
    """Return the stack of all nodes: how many may be ``out`` of service, and how many are worked on in ``parallel``."""
    rollout = {
        "maxUnavailable": out,
        "maxParallel": parallel,
        "soakMinutes": 0,
        "maxFailures": 100_000,
        "nodeEvents": False,
    }
    return {
        "apiVersion": "grapnel.dev/v1alpha1",
        "kind": "GpuStack",
        "metadata": {"name": "all"},
        "spec": {"nodeSelector": {}, "driver": {"version": version}, "rollout": rollout},
    }
