"""Pods as people write them: plain values, no cluster needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lab import images

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Manifest = dict[str, Any]

RESOURCE = "nvidia.com/gpu"
HANDLER = "nvidia"
ALLOCATION = "grapnel.dev/allocation"
OWN_IMAGE = os.environ.get("GRAPNEL_E2E_IMAGE", "")  # for clusters that do not have the lab's images
SHELL = OWN_IMAGE or images.reference("gpu-shell")
GREEDY = images.reference("greedy")
TEST = images.reference("gpu-test")
GRACE_S = 1

# What a container sees of GPUs, a line each; `Sight` reads it.
LOOK = """
echo "env ${NVIDIA_VISIBLE_DEVICES-}"
for node in /dev/nvidia*; do [ -c "$node" ] && echo "node $node"; done
find /usr/lib /usr/lib64 -name 'libcuda.so*' -o -name 'libnvidia-ml.so*' 2>/dev/null | sed 's/^/library /'
if command -v nvidia-smi >/dev/null; then echo "tool nvidia-smi"; nvidia-smi -L; fi
"""
# ... and says when that is all: an engine tells of a container's end before all that it said is in the log.
LOOKED = "looked"
LOOK_ONCE = f"{LOOK.rstrip()} && echo {LOOKED}\n"
# ... or stays until it is told to end, which it does at once: a shell ignores TERM as process 1.
STAY = f"{LOOK}\necho {LOOKED}\ntrap 'exit 0' TERM\nwhile :; do sleep 3600 & wait; done\n"


def container(
    name: str = "main",
    script: str = LOOK_ONCE,
    *,
    image: str = SHELL,
    command: Sequence[str] = (),
    gpus: int = 0,
    env: Mapping[str, str] | None = None,
    privileged: bool = False,
) -> Manifest:
    """Return a container with this many GPUs that runs a shell script, or a command."""
    made: Manifest = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command) or ["sh", "-c", script],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }
    if gpus:
        made["resources"] = {"limits": {RESOURCE: str(gpus)}}
    if privileged:
        made["securityContext"] = {"privileged": True}
    return made


def pod(
    name: str,
    *containers: Manifest,
    node: str = "",
    init: Sequence[Manifest] = (),
    runtime_class: str = HANDLER,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a pod that is not started again when it ends; ``node`` "" lets the scheduler choose."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": dict(annotations or {})},
        "spec": pod_spec(*containers, node=node, init=init, runtime_class=runtime_class) | {"restartPolicy": "Never"},
    }


def pod_spec(
    *containers: Manifest, node: str = "", init: Sequence[Manifest] = (), runtime_class: str = HANDLER
) -> Manifest:
    """Return what pods and templates of pods share."""
    spec: Manifest = {
        "containers": list(containers),
        "initContainers": list(init),
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        term = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    return spec


def deployment(name: str, replicas: int, *containers: Manifest, node: str = "") -> Manifest:
    """Return a deployment that replaces its pods one by one."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(*containers, node=node)},
        },
    }


def disruption_budget(name: str, *, min_available: int) -> Manifest:
    """Return the budget of the deployment of that name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": name}}},
    }


def daemon_set(name: str, *containers: Manifest, node: str) -> Manifest:
    """Return a DaemonSet for one node alone."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(*containers, node=node)},
        },
    }
