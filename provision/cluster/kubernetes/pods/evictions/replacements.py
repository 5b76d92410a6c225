"""Has the replacements of pods started on other nodes before the pods leave; all is remembered in the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.pods.budgets import render_selector
from provision.cluster.kubernetes.pods.eviction import evict
from provision.cluster.kubernetes.pods.evictions.workloads import Deployment, Replica, ReplicaSet, revision
from provision.rollout.interface.cluster import Eviction, EvictionOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.pods import Toleration
    from provision.rollout.model import GpuPod

REPLACES: Final = "grapnel.dev/replaces"  # annotation of a template: the UID of the pod that has to leave
T = TypeVar("T")
_GONE: Final = Eviction(outcome=EvictionOutcome.GONE)


class Replacements:
    """``acting`` is for whatever changes something; where no replacement can come first, ``keeps`` the pod."""

    def __init__(self, api: Api, acting: Api, *, keeps: bool) -> None:
        self._api, self._acting, self._keeps = api, acting, keeps

    def ask(self, pod: GpuPod) -> Eviction | None:
        """Have the pod replaced, and say what it waits for; None where it is to be evicted as all others."""
        deployment, step = self._step(pod)
        match step:
            case None:
                return _GONE
            case Leave():
                return evict(self._acting, pod)
            case Impossible(reason):
                return _blocked(f"its replacement cannot come first: {reason}") if self._keeps else None
            case Wait(reason):
                return _blocked(reason)
            case Restart():
                assert deployment is not None  # what is to be restarted
                return self._restart(pod, deployment)

    def foresee(self, pod: GpuPod) -> str | None:
        """Return what would keep the pod from being replaced first, empty where nothing would.

        None: others are ready on other nodes, and its disruption budget decides.
        """
        _deployment, step = self._step(pod)
        if isinstance(step, Leave):
            return None
        if isinstance(step, Impossible):
            then = "it stays until drainTimeoutMinutes are over" if self._keeps else "it is evicted as all others"
            return f"its replacement cannot come first ({step.reason}): {then}"
        return step.reason if isinstance(step, Wait) else ""

    def _step(self, pod: GpuPod) -> tuple[Deployment | None, Step | None]:
        """Return what is done about a pod now, None for one that has gone; and its Deployment, if it has one."""
        kind, _, owner = pod.controller.partition("/")
        if kind != "ReplicaSet":
            reason = f"{pod.controller} starts no second one" if pod.controller else "nothing would start another one"
            return None, Impossible(reason)
        place = f"/apis/apps/v1/namespaces/{quote(pod.namespace, safe='')}"
        replica_set = self._read(f"{place}/replicasets/{quote(owner, safe='')}", ReplicaSet)
        if replica_set is None or replica_set.deployment is None:
            return None, Impossible(f"ReplicaSet {owner} is not of a Deployment")
        maker = replica_set.deployment
        deployment = self._read(f"{place}/deployments/{quote(maker.name, safe='')}", Deployment)
        if deployment is None or deployment.metadata.uid != maker.uid:
            return None, Impossible(f"Deployment {maker.name} is gone")
        labels = render_selector(deployment.spec.selector)
        replicas = self._api.list_all(
            f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods", Replica, labels=labels
        )
        found = next((each for each in replicas if each.metadata.uid == pod.uid), None)
        if found is None:
            return deployment, None
        if found.owner != replica_set.metadata.uid:  # whoever makes a pod may write into it that it is of another's
            return None, Impossible(f"ReplicaSet {owner} has not made it")
        return deployment, next_step(found, replica_set, deployment, replicas)

    def _restart(self, pod: GpuPod, deployment: Deployment) -> Eviction:
        """Change the template, once: the patch is refused if anything about the Deployment has changed meanwhile."""
        meta = deployment.metadata
        where = f"/apis/apps/v1/namespaces/{quote(meta.namespace, safe='')}/deployments/{quote(meta.name, safe='')}"
        body = {
            "metadata": {"resourceVersion": meta.resource_version},
            "spec": {"template": {"metadata": {"annotations": {REPLACES: pod.uid}}}},
        }
        request = Request(method="PATCH", path=where, body=body, content_type=MERGE_PATCH)
        try:
            self._acting.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND))
        except StatusError:
            return _blocked(f"Deployment {meta.name} is being changed: asked again soon")
        return _blocked(f"waits for Deployment {meta.name}, which is restarted, to start its replacement")

    def _read(self, path: str, type_: type[T]) -> T | None:
        try:
            return self._api.call(Request(method="GET", path=path), type_, expected=(NOT_FOUND,))
        except StatusError:
            return None


def _blocked(reason: str) -> Eviction:
    return Eviction(outcome=EvictionOutcome.BLOCKED, reason=reason)


# Decides how the replacement of a pod comes to be ready on another node before the pod leaves its cordoned node.
# Kubernetes starts a replacement only when a pod has gone. A Deployment starts it before, within its ``maxSurge``, when
# its template changes: so it is restarted, as `kubectl rollout restart` does, and ends the pod itself. All of its pods
# are started again then, so that is done only where all of them are on this node. Where others run on other nodes, pods
# are evicted one after the other.

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
    that was killed since, or by others.
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
