"""Finds the pods that have a GPU, among what the API server lists. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from provision.rollout.model import GpuPod

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from provision.cluster.objects import OwnerReference, Pod

NVIDIA: Final = "nvidia.com/"  # every extended resource of this domain is a GPU or a part of one
_MIRROR: Final = "kubernetes.io/config.mirror"  # a static pod of the kubelet: evicting its mirror stops nothing
_FINISHED: Final = frozenset({"Succeeded", "Failed"})  # their containers have ended, their devices are free
_NONE: Final = re.compile(r"\+?0*(\.0*)?([A-Za-z]*|[eE][+-]?[0-9]+)")  # a quantity of nothing, such as "0" or "0k"


def gpu_pods(pods: Iterable[Pod], resources: Collection[str]) -> dict[str, tuple[GpuPod, ...]]:
    """Return the pods that have a GPU, or wait on their node for one, by node; by namespace and name within it.

    ``resources`` are the declared resource names; everything in ``nvidia.com/`` counts besides.
    """
    found: dict[str, list[GpuPod]] = {}
    for pod in pods:
        if pod.spec.node_name and pod.status.phase not in _FINISHED and has_gpu(pod, resources):
            found.setdefault(pod.spec.node_name, []).append(_gpu_pod(pod))
    return {node: tuple(sorted(each, key=lambda pod: (pod.namespace, pod.name))) for node, each in found.items()}


def has_gpu(pod: Pod, resources: Collection[str]) -> bool:
    """Return whether any container asks for a GPU: init containers and sidecars keep theirs for the pod."""
    return any(
        (name.startswith(NVIDIA) or name in resources) and _NONE.fullmatch(quantity) is None
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for asked in (container.resources.requests, container.resources.limits)
        for name, quantity in asked.items()
    )


def _gpu_pod(pod: Pod) -> GpuPod:
    controller = next((each for each in pod.metadata.owner_references if each.controller), None)
    return GpuPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        is_mirror_or_daemon=_MIRROR in pod.metadata.annotations or _is_daemon(controller),
        controller="" if controller is None else f"{controller.kind}/{controller.name}",
    )


def _is_daemon(controller: OwnerReference | None) -> bool:
    return controller is not None and controller.kind == "DaemonSet"
