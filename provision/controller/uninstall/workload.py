"""Reads the Deployment of the controller, its pods and its Jobs on nodes, and ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from provision.base.printable import printable
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.objects.core import ApiObject, Condition, LabelSelector, Metadata
from provision.cluster.kubernetes.objects.pods import ContainerStatus
from provision.cluster.kubernetes.pods.gpu_pods import MIRROR, NODE_JOB

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api

NODE: Final = "grapnel.dev/node"  # annotation of a Job: the Node that it is about
_LONGEST: Final = 300  # characters of what others say


class DeploymentSpec(ApiObject, frozen=True, kw_only=True):
    replicas: int = 1
    selector: LabelSelector = LabelSelector()


class DeploymentStatus(ApiObject, frozen=True, kw_only=True):
    ready_replicas: int = 0


class Deployment(ApiObject, frozen=True, kw_only=True):
    """A Deployment of apps/v1."""

    metadata: Metadata
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class PodStatus(ApiObject, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(ApiObject, frozen=True, kw_only=True):
    """A pod of the controller."""

    metadata: Metadata
    status: PodStatus = PodStatus()

    @property
    def is_of_replica_set(self) -> bool:
        """Whether a ReplicaSet has made it. The kubelet of any node may write the mirror of a pod with any labels."""
        owner = self.metadata.controller
        return owner is not None and owner.is_a("apps", "ReplicaSet") and MIRROR not in self.metadata.annotations

    @property
    def trouble(self) -> str:
        """Why it does not run, empty where nothing says so."""
        waits = (each.state.waiting for each in self.status.container_statuses)
        found = next((f"{each.reason}: {each.message}" for each in waits if each is not None), "")
        missing = (each for each in self.status.conditions if each.type == "PodScheduled" and each.status == "False")
        return printable(found or next((each.message for each in missing), ""), limit=_LONGEST).strip(": ")


class JobStatus(ApiObject, frozen=True, kw_only=True):
    active: int = 0


class Job(ApiObject, frozen=True, kw_only=True):
    """A run on a node."""

    metadata: Metadata
    status: JobStatus = JobStatus()


@dataclass(frozen=True, slots=True)
class Workload:
    """The Deployment ``name`` of a namespace; each call may raise ClusterError."""

    api: Api
    namespace: str
    name: str

    def find(self) -> Deployment | None:
        """Return it as it is, or None."""
        try:
            return self.api.call(Request(method="GET", path=self._path), Deployment, expected=(NOT_FOUND,))
        except StatusError:
            return None

    def pods(self, deployment: Deployment) -> list[Pod]:
        """Return the pods that it still has, those included that are about to end."""
        labels = ",".join(f"{key}={value}" for key, value in deployment.spec.selector.match_labels.items())
        pods = self.api.list_all(f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods", Pod, labels=labels)
        return [each for each in pods if each.is_of_replica_set and each.status.phase not in {"Succeeded", "Failed"}]

    def busy_nodes(self) -> list[str]:
        """Return the nodes on which Jobs of the controller run."""
        path = f"/apis/batch/v1/namespaces/{quote(self.namespace, safe='')}/jobs"
        jobs = self.api.list_all(path, Job, labels=NODE_JOB)
        return sorted(each.metadata.annotations.get(NODE, each.metadata.name) for each in jobs if each.status.active)

    def end(self) -> None:
        """Have it keep no pod."""
        body = {"spec": {"replicas": 0}}
        request = Request(method="PATCH", path=f"{self._path}/scale", body=body, content_type=MERGE_PATCH)
        try:
            self.api.call(request, msgspec.Raw, expected=(NOT_FOUND, CONFLICT))
        except StatusError as error:
            if error.code == CONFLICT:
                self.end()

    @property
    def _path(self) -> str:
        return f"/apis/apps/v1/namespaces/{quote(self.namespace, safe='')}/deployments/{quote(self.name, safe='')}"
