"""Evicts pods, with the API that respects disruption budgets; never a delete, never by force."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from provision.cluster.kubernetes.api.client import CONFLICT, FORBIDDEN, NOT_FOUND, PASSING
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.rollout.interface.cluster import Eviction, EvictionOutcome

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.core import Status
    from provision.rollout.model import GpuPod

_INVALID: Final = (400, 422)  # what admission webhooks answer besides 403
_REFUSALS: Final = frozenset({*PASSING, CONFLICT, FORBIDDEN, NOT_FOUND, *_INVALID})
# The two wordings of the API server (registry/core/pod, registry/generic) for a pod of that name that is another one.
_OTHER_POD: Final = re.compile(r"UID in (the )?precondition")
TWO_BUDGETS: Final = "several disruption budgets select it, and no such pod can be evicted: remove all but one"
# The reason of the causes by which a budget refuses: with 429, and from Kubernetes 1.37 on, for a budget that is
# broken or has too many evictions to confirm, with 403 as well.
_BUDGET: Final = "DisruptionBudget"
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"  # registry/core/pod/storage/eviction.go, with code 500


def evict(api: Api, pod: GpuPod) -> Eviction:
    """Ask once; what is refused for now is worth asking again later. The pod keeps its own grace period."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}/eviction"
    try:
        api.call(Request(method="POST", path=path, body=body), msgspec.Raw, expected=_REFUSALS, passing=())
    except StatusError as error:
        return read_refusal(error)
    return Eviction(outcome=EvictionOutcome.EVICTED)


def read_refusal(error: StatusError) -> Eviction:
    """Return what a refusal means for the pod; missing permissions do not come here."""
    status = error.status
    if error.code == NOT_FOUND or (error.code == CONFLICT and _OTHER_POD.search(status.message)):
        return Eviction(outcome=EvictionOutcome.GONE)
    return Eviction(outcome=EvictionOutcome.BLOCKED, reason=_reason(status, error.code))


def _reason(status: Status, code: int) -> str:
    """Prefer the causes, which name the budget: "The disruption budget x needs 2 healthy pods and has 2 currently"."""
    if causes := " ".join(each.message for each in status.details.causes if each.reason == _BUDGET and each.message):
        return causes
    if _TWO_BUDGETS in status.message:
        return TWO_BUDGETS
    return status.message or f"the API server answers {code}"
