"""Makes Nodes and pods of the size that they have in clusters with GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lab.apiserver.store import Store

GPU: Final = "nvidia.com/gpu"
_FEATURES: Final = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(60)} | {
    f"nvidia.com/gpu.property-{number}": "NVIDIA-H100-80GB-HBM3" for number in range(30)
}
_IMAGES: Final = [
    {"names": [f"registry.example/team/image-{number}@sha256:{number:064}"], "sizeBytes": 10**9} for number in range(50)
]


def node(name: str, *, address: str = "", is_ready: bool = True, is_large: bool = False) -> dict[str, Any]:
    """Return a Node; a large one has the labels of feature discovery and fifty images, 15 KiB in all."""
    conditions = [
        {"type": kind, "status": "False", "lastHeartbeatTime": "2026-05-04T12:00:00Z", "message": "kubelet is well"}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name} | (_FEATURES if is_large else {}),
            "annotations": {"nfd.node.kubernetes.io/feature-labels": ",".join(_FEATURES)} if is_large else {},
        },
        "spec": {},
        "status": {
            "conditions": [*conditions, {"type": "Ready", "status": "True" if is_ready else "False"}],
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
            "nodeInfo": {"machineID": "", "kernelVersion": "6.8.0-60-generic"},
            "images": _IMAGES if is_large else [],
        },
    }


def pod(name: str, where: str, *, gpus: int = 1, is_large: bool = False) -> dict[str, Any]:
    """Return a running pod on a Node; a large one has the environment and conditions of a real one, 5 KiB in all."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}} if gpus else {}
    environment = [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(50)] if is_large else []
    return {
        "metadata": {
            "name": name,
            "namespace": "jobs",
            "labels": {"app": "train"},
            "ownerReferences": [{"kind": "Job", "name": f"job-{name}", "controller": True, "apiVersion": "batch/v1"}],
        },
        "spec": {"nodeName": where, "containers": [{"name": "main", "resources": resources, "env": environment}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}] * 5},
    }


def make_fleet(
    store: Store, nodes: int, *, gpu_pods: int = 1, other_pods: int = 0, is_large: bool = False
) -> list[str]:
    """Store so many Nodes with their pods; return the names of the Nodes."""
    names = [f"gpu{number:05}" for number in range(nodes)]
    for number, name in enumerate(names):
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        store.put("nodes", node(name, address=address, is_large=is_large))
        for index in range(gpu_pods + other_pods):
            store.put("pods", pod(f"{name}-{index}", name, gpus=int(index < gpu_pods), is_large=is_large))
    return names
