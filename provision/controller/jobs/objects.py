"""Defines what is read of Jobs, their pods and Events, and whose pod one is. Pure.

A pod is a Job's by the uid of its owner. Names and labels prove nothing: the kubelet of any node may write a pod with
the labels of a Job of another node.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.objects.core import ApiObject, Condition, Metadata
from provision.cluster.kubernetes.objects.pods import Terminated, Waiting
from provision.cluster.kubernetes.pods.gpu_pods import MIRROR
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DISRUPTED: Final = "DisruptionTarget"


_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class JobStatus(ApiObject, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class Job(ApiObject, frozen=True, kw_only=True):
    """A Job of batch/v1."""

    metadata: Metadata
    status: JobStatus = JobStatus()

    @property
    def is_complete(self) -> bool:
        """Whether its pod has ended with 0."""
        ended = {"Complete", "SuccessCriteriaMet"}
        return any(each.type in ended and each.status == "True" for each in self.status.conditions)

    @property
    def failure(self) -> str:
        """Why it has failed, empty while it has not."""
        # FailureTarget comes first; Failed only when its pods have ended, which on a node that has gone is never.
        failed = [each for each in self.status.conditions if each.type in {"Failed", "FailureTarget"}]
        return next((each.message or each.type for each in failed if each.status == "True"), "")


class PodContainerState(ApiObject, frozen=True, kw_only=True):
    """One of them is set: ``running`` has nothing that is read."""

    waiting: Waiting | None = None
    running: dict[str, object] | None = None
    terminated: Terminated | None = None


class ContainerStatus(ApiObject, frozen=True, kw_only=True):
    name: str = ""
    state: PodContainerState = PodContainerState()
    last_state: PodContainerState = PodContainerState()


class PodStatus(ApiObject, frozen=True, kw_only=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(ApiObject, frozen=True, kw_only=True):
    node_name: str = ""


class AgentPod(ApiObject, frozen=True, kw_only=True):
    """The pod of a Job."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def state(self) -> PodContainerState:
        """How its container stands."""
        return next((each.state for each in self.status.container_statuses), PodContainerState())

    @property
    def last(self) -> Terminated | None:
        """How its container ended last, None where it has not."""
        found = next(iter(self.status.container_statuses), ContainerStatus())
        return found.state.terminated or found.last_state.terminated

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs again."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def why_ended(self) -> str:
        """Who or what has ended it, as far as that can be seen."""
        disrupted = next((each for each in self.status.conditions if each.type == _DISRUPTED), None)
        if disrupted is not None:
            return f"its pod was ended: {disrupted.message or disrupted.reason}"
        if self.status.reason:  # such as of a node that shuts down
            return f"its pod was ended: {self.status.message or self.status.reason}"
        return "its pod was deleted" if self.metadata.deletion_timestamp else "its pod has ended"


def newest_pod(pods: Iterable[AgentPod], job_uid: str, node: str) -> AgentPod | None:
    """Return the pod by which a Job is at work on its node; None where it has none that is not about to go."""
    living = [pod for pod in pods if is_pod_of(pod, job_uid, node) and pod.metadata.deletion_timestamp is None]
    return max(living, key=lambda pod: (pod.metadata.creation_timestamp or _NEVER, pod.metadata.name), default=None)


def is_pod_of(pod: AgentPod, job_uid: str, node: str) -> bool:
    """Tell whether a pod is that of a Job: made by the Job controller, and bound to the node that the Job is for."""
    owner = pod.metadata.controller
    return is_on(pod, node) and owner is not None and owner.is_a("batch", "Job") and owner.uid == job_uid


def is_on(pod: AgentPod, node: str) -> bool:
    """Tell whether a pod is bound to a node by the API, and not a kubelet's word for one of its own."""
    return pod.spec.node_name == node and MIRROR not in pod.metadata.annotations


class Event(ApiObject, frozen=True, kw_only=True):
    """An Event of the core API."""

    reason: str = ""
    message: str = ""
    type: str = ""


class JobError(ClusterError):
    """A Job did not start, or did not come to its end; the message says why, in the words of who refused."""
