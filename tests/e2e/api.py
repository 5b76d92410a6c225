"""The cluster's API through the official client: the few calls that these tests make, in their words."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

from tests.e2e.manifests import GRACE_S, RESOURCE
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.manifests import Manifest

CALL_TIMEOUT_S = 20
BUSY = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.GATEWAY_TIMEOUT)


class Api:
    """One cluster as its administrator sees it. Every call has a time limit."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = configured = config.new_client_from_config(str(kubeconfig))
        self.core = client.CoreV1Api(configured)
        self.apps = client.AppsV1Api(configured)
        self.policy = client.PolicyV1Api(configured)
        self.resource = client.ResourceV1Api(configured)
        self._node_api = client.NodeV1Api(configured)
        self.kubeconfig = kubeconfig

    def close(self) -> None:
        """Close the connections to the API server."""
        self._client.close()

    def node(self, name: str) -> Any:
        """Return a node."""
        return self.core.read_node(name, _request_timeout=CALL_TIMEOUT_S)

    def nodes(self) -> list[Any]:
        """Return every node."""
        found: list[Any] = self.core.list_node(_request_timeout=CALL_TIMEOUT_S).items
        return found

    def allocatable(self, name: str) -> int:
        """Return how many GPUs a node offers."""
        return int(self.node(name).status.allocatable.get(RESOURCE, 0))

    def capacity(self, name: str) -> int:
        """Return how many GPUs a node has, healthy or not."""
        return int(self.node(name).status.capacity.get(RESOURCE, 0))

    def has_runtime_class(self, name: str) -> bool:
        """Tell whether pods may name a runtime class."""
        return self._read(self._node_api.read_runtime_class, name) is not None

    def create(self, namespace: str, manifest: Manifest) -> None:
        """Make a pod, a deployment, a budget or a claim."""
        call = {
            "Pod": self.core.create_namespaced_pod,
            "DaemonSet": self.apps.create_namespaced_daemon_set,
            "Deployment": self.apps.create_namespaced_deployment,
            "ResourceClaim": self.resource.create_namespaced_resource_claim,
            "ResourceClaimTemplate": self.resource.create_namespaced_resource_claim_template,
            "PodDisruptionBudget": self.policy.create_namespaced_pod_disruption_budget,
        }[manifest["kind"]]
        call(namespace, manifest, _request_timeout=CALL_TIMEOUT_S)

    def make_namespace(self, name: str) -> None:
        """Make a namespace; pods can be made in it once ``has_account`` is true."""
        self.core.create_namespace({"metadata": {"name": name}}, _request_timeout=CALL_TIMEOUT_S)

    def has_account(self, namespace: str) -> bool:
        """Tell whether the namespace's default service account is there."""
        return self._read(self.core.read_namespaced_service_account, "default", namespace) is not None

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace and do not wait for its end."""
        with suppress(ApiException):
            self.core.delete_namespace(name, _request_timeout=CALL_TIMEOUT_S)

    def pods(self, namespace: str, selector: str = "") -> list[Any]:
        """Return the pods of a namespace."""
        listed = self.core.list_namespaced_pod(namespace, label_selector=selector, _request_timeout=CALL_TIMEOUT_S)
        found: list[Any] = listed.items
        return found

    def running_on(self, node: str) -> list[Any]:
        """Return the pods of all namespaces that run on a node."""
        selector = f"spec.nodeName={node},status.phase=Running"
        listed = self.core.list_pod_for_all_namespaces(field_selector=selector, _request_timeout=CALL_TIMEOUT_S)
        found: list[Any] = listed.items
        return found

    def all_pods(self) -> list[Any]:
        """Return the pods of all namespaces."""
        found: list[Any] = self.core.list_pod_for_all_namespaces(_request_timeout=CALL_TIMEOUT_S).items
        return found

    def makers(self, namespace: str) -> list[str]:
        """Return what makes pods in a namespace: a ReplicaSet outlives its deployment by a moment."""
        timeout = {"_request_timeout": CALL_TIMEOUT_S}
        sets = self.apps.list_namespaced_replica_set(namespace, **timeout).items
        daemons = self.apps.list_namespaced_daemon_set(namespace, **timeout).items
        return [each.metadata.name for each in (*sets, *daemons)]

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod; one that is gone already is gone. An API server that is busy is asked again."""
        wait_for(f"pod {namespace}/{name} may be deleted", lambda: self._delete_pod(namespace, name))

    def _delete_pod(self, namespace: str, name: str) -> bool:
        try:
            self.core.delete_namespaced_pod(
                name, namespace, grace_period_seconds=GRACE_S, _request_timeout=CALL_TIMEOUT_S
            )
        except ApiException as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return True
            if error.status not in BUSY:
                raise
            return False
        return True

    def delete_all(self, namespace: str) -> None:
        """Delete what makes pods, then the pods."""
        timeout = {"_request_timeout": CALL_TIMEOUT_S}
        self.policy.delete_collection_namespaced_pod_disruption_budget(namespace, **timeout)
        self.apps.delete_collection_namespaced_deployment(namespace, **timeout)
        self.apps.delete_collection_namespaced_daemon_set(namespace, **timeout)
        self.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=GRACE_S, **timeout)

    def add_container(self, namespace: str, pod: str, container: Manifest) -> None:
        """Add an ephemeral container to a running pod, as `kubectl debug` does."""
        body = {"spec": {"ephemeralContainers": [container]}}
        self.core.patch_namespaced_pod_ephemeralcontainers(pod, namespace, body, _request_timeout=CALL_TIMEOUT_S)

    def log(self, namespace: str, pod: str, container: str) -> str:
        """Return what a container has written so far."""
        text: str = self.core.read_namespaced_pod_log(
            pod, namespace, container=container, _request_timeout=CALL_TIMEOUT_S
        )
        return text

    def run_in(self, namespace: str, pod: str, container: str, command: list[str]) -> str:
        """Run a command in a running container and return its output."""
        # The stream call replaces a method of the client that it is given: one of its own.
        with config.new_client_from_config(str(self.kubeconfig)) as own:
            session = stream(
                client.CoreV1Api(own).connect_get_namespaced_pod_exec,
                pod,
                namespace,
                container=container,
                command=command,
                stdout=True,
                stderr=True,
                stdin=False,
                tty=False,
                _request_timeout=CALL_TIMEOUT_S,
                _preload_content=False,
            )
            try:
                session.run_forever(timeout=CALL_TIMEOUT_S)
                output: str = session.read_all()
            finally:
                session.sock.shutdown()  # its own close leaves the socket open when the other side was first
        return output

    def conditions(self, node: str) -> dict[str, tuple[str, str]]:
        """Return status and message of a node's conditions by type."""
        return {each.type: (each.status, each.message) for each in self.node(node).status.conditions}

    def node_events(self, name: str) -> list[str]:
        """Return the events of a node, a line each."""
        selector = f"involvedObject.kind=Node,involvedObject.name={name}"
        found = self.core.list_event_for_all_namespaces(field_selector=selector, _request_timeout=CALL_TIMEOUT_S).items
        return [f"{event.reason}: {event.message}" for event in found]

    def events(self, namespace: str) -> Iterator[str]:
        """Yield the namespace's events, oldest first, a line each."""
        listed = self.core.list_namespaced_event(namespace, _request_timeout=CALL_TIMEOUT_S).items
        for event in sorted(listed, key=lambda each: each.metadata.creation_timestamp):
            about = f"{event.involved_object.kind}/{event.involved_object.name}"
            yield f"{event.type} {about} {event.reason}: {event.message}"

    @staticmethod
    def _read(call: Any, *arguments: str) -> Any:
        """Return what a read finds, None where there is nothing."""
        try:
            return call(*arguments, _request_timeout=CALL_TIMEOUT_S)
        except ApiException as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None


def asks_for_gpus(pod: Any) -> bool:
    """Tell whether a container of a pod asks for GPUs."""
    return any(RESOURCE in (each.resources.limits or {}) for each in pod.spec.containers)


def is_ready(pod: Any) -> bool:
    """Tell whether a pod is in service: one that is to be deleted is not."""
    conditions = pod.status.conditions or ()
    is_leaving = pod.metadata.deletion_timestamp is not None
    return not is_leaving and any(each.type == "Ready" and each.status == "True" for each in conditions)


@dataclass(frozen=True)
class Identity:
    """By what a running container is known to be the same one: another start gives another id."""

    container_id: str
    restarts: int


def identities(pod: Any) -> dict[str, Identity]:
    """Return the identities of a pod's containers by name."""
    statuses = pod.status.container_statuses or ()
    return {each.name: Identity(each.container_id or "", each.restart_count) for each in statuses}
