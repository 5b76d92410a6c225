"""Has the replacements of pods started elsewhere before the pods leave; nothing is remembered but in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.pods.budgets import render_selector
from provision.cluster.kubernetes.pods.eviction import evict
from provision.cluster.kubernetes.pods.evictions.replacement import Impossible, Leave, Restart, Step, Wait, next_step
from provision.cluster.kubernetes.pods.evictions.workloads import Deployment, Replica, ReplicaSet
from provision.rollout.interface.cluster import Eviction, EvictionOutcome

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api
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
                assert deployment is not None  # noqa: S101 - what is to be restarted
                return self._restart(pod, deployment)

    def foresee(self, pod: GpuPod) -> str | None:
        """Return what would keep the pod from being replaced first, empty where nothing would.

        None: others are ready elsewhere, and its disruption budget decides.
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
