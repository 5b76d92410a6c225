"""Defines what is read of EvictionRequests and Evictions, how one is asked for, and what became of it (KEP-4563)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.kubernetes.objects.core import Condition, Metadata

if TYPE_CHECKING:
    from provision.rollout.model import GpuPod

API_VERSION: Final = "lifecycle.k8s.io/v1alpha1"
REQUESTER: Final = "grapnel.dev/drain"  # who asks; also a label of the Evictions that came of it
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "grapnel"
OF_NODE: Final = "grapnel.dev/node"  # annotation of our requests: a node's name may be too long for a label
PodKey = tuple[str, str]  # namespace and uid: whoever may write in one namespace speaks of no pod of another one


class _Object(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tolerant: what is not named is ignored."""


class ApiResource(_Object, frozen=True, kw_only=True):
    name: str = ""


class ApiResources(_Object, frozen=True, kw_only=True):
    """What the API server serves of a version of a group."""

    resources: tuple[ApiResource, ...] = ()


class PodReference(_Object, frozen=True, kw_only=True):
    name: str = ""
    uid: str = ""


class Target(_Object, frozen=True, kw_only=True):
    pod: PodReference = PodReference()


class TargetSpec(_Object, frozen=True, kw_only=True):
    """What is to leave, and who asks. Of an Eviction, names say nothing: it is found by its target."""

    target: Target = Target()
    requester: str = ""


class RequestStatus(_Object, frozen=True, kw_only=True):
    """``observed_generation`` is set by the controller that acts on requests, None before it has seen it."""

    observed_generation: int | None = None
    conditions: tuple[Condition, ...] = ()


class EvictionRequest(_Object, frozen=True, kw_only=True):
    metadata: Metadata
    spec: TargetSpec = TargetSpec()
    status: RequestStatus = RequestStatus()

    @property
    def is_ours(self) -> bool:
        """Whether grapnel made it: its label is written by others as well, and there is one of ours for a pod."""
        return self.spec.requester == REQUESTER and self.metadata.name == request_name(self.spec.target.pod.uid)

    def __str__(self) -> str:
        return f"EvictionRequest {self.metadata.namespace}/{self.metadata.name}"

    @property
    def about(self) -> PodKey:
        """The pod: one in the request's own namespace, whatever uid it names."""
        return self.metadata.namespace, self.spec.target.pod.uid


class TargetResponder(_Object, frozen=True, kw_only=True):
    """``state`` is Inactive, Active, Interrupted, Canceled or Completed; at most one is Active."""

    name: str
    state: str = "Inactive"


class Responder(_Object, frozen=True, kw_only=True):
    """What a responder says of itself; ``message`` is for people."""

    name: str
    start_time: datetime | None = None
    heartbeat_time: datetime | None = None
    expected_completion_time: datetime | None = None
    message: str | None = None


class ProgressStatus(_Object, frozen=True, kw_only=True):
    target_responders: tuple[TargetResponder, ...] = ()
    responders: tuple[Responder, ...] = ()

    @property
    def active(self) -> Responder | None:
        """The responder whose turn it is."""
        name = next((each.name for each in self.target_responders if each.state == "Active"), None)
        return next((each for each in self.responders if each.name == name), None)


class Progress(_Object, frozen=True, kw_only=True):
    """An Eviction of lifecycle.k8s.io: how far the eviction of a pod is."""

    metadata: Metadata = Metadata()
    spec: TargetSpec = TargetSpec()
    status: ProgressStatus = ProgressStatus()

    @property
    def about(self) -> PodKey:
        """The pod: one in the Eviction's own namespace, whatever uid it names."""
        return self.metadata.namespace, self.spec.target.pod.uid


def request_name(uid: str) -> str:
    """Return the name of our request for a pod of that uid: there is one at most."""
    return f"grapnel-{uid}"


def render_request(pod: GpuPod) -> dict[str, Any]:
    """Return our request for a pod; it is deleted with the pod, by the garbage collector."""
    return {
        "apiVersion": API_VERSION,
        "kind": "EvictionRequest",
        "metadata": {
            "name": request_name(pod.uid),
            "namespace": pod.namespace,
            "labels": {MANAGED_BY: MANAGER},
            "annotations": {OF_NODE: pod.node},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}],
        },
        "spec": {"target": {"pod": {"name": pod.name, "uid": pod.uid}}, "requester": REQUESTER, "intent": "Eviction"},
    }


ANSWER: Final = timedelta(seconds=30)  # a controller that runs sees a request within a second
HEARTBEAT: Final = timedelta(minutes=20)  # of the API: after that, the next responder has its turn
_SLACK: Final = timedelta(minutes=2)  # for the controller to see to that
_SAID: Final = 200  # letters of what a responder says


@dataclass(frozen=True, slots=True)
class UnderWay:
    """It is being seen to; ``reason`` says by whom."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nothing in this cluster acts on requests."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Something acts on requests, and does not on this one any more."""


Answer = UnderWay | Unanswered | GivenUp


def read_answer(request: EvictionRequest, progress: Progress | None, now: datetime) -> Answer:
    """Return how a request stands; ``now`` is the API server's time."""
    if any(each.type == "Failed" and each.status == "True" for each in request.status.conditions):
        return GivenUp()
    active = None if progress is None else progress.status.active
    if active is not None:
        return GivenUp() if _is_silent(active, now) else UnderWay(_describe(active))
    created = request.metadata.creation_timestamp or now
    if request.status.observed_generation is None and now - created >= ANSWER:
        return Unanswered()
    return UnderWay("its eviction is requested")


def _is_silent(responder: Responder, now: datetime) -> bool:
    """Tell whether a responder has missed its deadline, and its turn was not given to the next one."""
    last = responder.heartbeat_time or responder.start_time
    return last is not None and now - last > HEARTBEAT + _SLACK


def _describe(responder: Responder) -> str:
    said = " ".join((responder.message or "").split())[:_SAID]
    end = responder.expected_completion_time
    until = "" if end is None else f", expected until {end:%Y-%m-%d %H:%M:%S} UTC"
    return f"its eviction is requested, and {responder.name} is at it{until}{f': {said}' if said else ''}"
