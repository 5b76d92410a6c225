"""Decides how the replacement of a pod comes to be ready elsewhere before the pod leaves its cordoned node. Pure.

Kubernetes starts a replacement only when a pod has gone. A Deployment starts it before, within its ``maxSurge``, when
its template changes: so it is restarted, as `kubectl rollout restart` does, and ends the pod itself. All of its pods
are started again then, so that is done only where all of them are on this node. Where others run elsewhere, pods are
evicted one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.pods.evictions.workloads import revision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.cluster.kubernetes.objects.pods import Toleration
    from provision.cluster.kubernetes.pods.evictions.workloads import Deployment, Replica, ReplicaSet

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"  # who tolerates it is started on cordoned nodes


@dataclass(frozen=True, slots=True)
class Restart:
    """Have the Deployment start all of its pods again, and wait."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Evict the pod: enough others are ready."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing now, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """No replacement can come first, for this reason."""

    reason: str


Step = Restart | Leave | Wait | Impossible


def next_step(pod: Replica, replica_set: ReplicaSet, deployment: Deployment, replicas: Iterable[Replica]) -> Step:
    """Return what is done now about a pod of a Deployment; ``replicas`` are all pods that its selector finds.

    A Deployment that has a newer template than the pod is never restarted again: it may have been done by a process
    that was killed since, or by somebody else.
    """
    mine = [each for each in replicas if each.is_alive and each.owner]
    name = f"Deployment {deployment.metadata.name}"
    if deployment.status.observed_generation < deployment.metadata.generation:
        return Wait(f"waits for {name} to start its replacement")
    if revision(replica_set.metadata) < revision(deployment.metadata):
        return Wait(_why_not_replaced(pod, deployment, mine))
    elsewhere = [each for each in mine if each.spec.node_name != pod.spec.node_name]
    if elsewhere:
        ready, wanted = sum(each.is_ready for each in mine), deployment.spec.replicas
        if ready >= wanted:
            return Leave()
        return Wait(f"waits until all pods of {name} are ready, which {ready} of {wanted} are{_more(deployment)}")
    if reason := _why_impossible(pod, deployment):
        return Impossible(reason)
    if deployment.spec.paused:
        return Wait(f"{name} is paused, and starts no replacement: `kubectl rollout resume` ends that")
    return Restart()


def _why_impossible(pod: Replica, deployment: Deployment) -> str:
    name = f"Deployment {deployment.metadata.name}"
    if deployment.spec.strategy.type != "RollingUpdate":
        return f"the strategy of {name} is {deployment.spec.strategy.type}: it starts no pod before it ends another one"
    if not deployment.surge:
        return f"maxSurge of {name} is 0: it starts no pod before it ends another one"
    if deployment.unavailable >= deployment.spec.replicas:
        return f"maxUnavailable of {name} lets it end all of its pods at once"
    if _tolerates_cordon(pod.spec.tolerations):
        return "it tolerates cordoned nodes, so that its replacement may come to the same one"
    return ""


def _why_not_replaced(pod: Replica, deployment: Deployment, mine: Iterable[Replica]) -> str:
    """Return how far the replacement is."""
    name = f"Deployment {deployment.metadata.name}"
    paused = ", which is paused: `kubectl rollout resume` ends that" if deployment.spec.paused else ""
    newer = [each for each in mine if each.owner != pod.owner]
    if not newer:
        return f"waits for {name} to start its replacement{paused}{_more(deployment)}"
    waiting = [each for each in newer if not each.is_ready]
    if not waiting:
        return f"its replacement {_name(newer[0])} is ready, and {name} is to end it{paused}{_more(deployment)}"
    other = waiting[0]
    if other.spec.node_name:
        return f"waits for its replacement {_name(other)} on node {other.spec.node_name} to be ready{_more(deployment)}"
    why = f": {other.why_unscheduled}" if other.why_unscheduled else ""
    return f"waits for its replacement {_name(other)}, which has no node yet{why}"


def _name(pod: Replica) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _more(deployment: Deployment) -> str:
    return f": {deployment.complaint}" if deployment.complaint else ""


def _tolerates_cordon(tolerations: Iterable[Toleration]) -> bool:
    return any(
        each.key in ("", _UNSCHEDULABLE)
        and each.effect in ("", "NoSchedule")
        and (each.operator == "Exists" or (bool(each.key) and not each.value))
        for each in tolerations
    )
