"""A client of the kubelet's `v1.PodResourcesLister` over its socket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from lab.podresources.proto import api_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

SOCKET = Path("var/lib/kubelet/pod-resources/kubelet.sock")
TIMEOUT_S = 5.0
_SERVICE = "/v1.PodResourcesLister"
# gRPC shares connections per address within a process: after a restart that would be the broken one.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


@dataclass(frozen=True)
class ContainerDevices:
    """A container's devices of one resource."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: frozenset[str]


def allocated(node_root: Path, resource: str, *, timeout_s: float = TIMEOUT_S) -> tuple[ContainerDevices, ...]:
    """Return the containers that have devices of a resource on the node whose file system is at ``node_root``.

    Raises `grpc.RpcError` if the kubelet does not answer, as in the first seconds after its start.
    """
    answer: api_pb2.ListPodResourcesResponse = _ask(
        node_root, "List", api_pb2.ListPodResourcesRequest(), api_pb2.ListPodResourcesResponse, timeout_s
    )
    found = (
        ContainerDevices(pod.namespace, pod.name, container.name, resource, _ids(container.devices, resource))
        for pod in answer.pod_resources
        for container in pod.containers
    )
    return tuple(each for each in found if each.devices)


def allocatable(node_root: Path, resource: str, *, timeout_s: float = TIMEOUT_S) -> frozenset[str]:
    """Return the healthy devices of a resource, allocated or not. Raises `grpc.RpcError`."""
    request, response = api_pb2.AllocatableResourcesRequest(), api_pb2.AllocatableResourcesResponse
    answer: api_pb2.AllocatableResourcesResponse = _ask(
        node_root, "GetAllocatableResources", request, response, timeout_s
    )
    return _ids(answer.devices, resource)


def _ids(devices: Iterable[api_pb2.ContainerDevices], resource: str) -> frozenset[str]:
    """Return the ids of one resource: devices with a topology are listed one by one, others together."""
    return frozenset(name for each in devices if each.resource_name == resource for name in each.device_ids)


def _ask(node_root: Path, method: str, request: Any, response: Any, timeout_s: float) -> Any:
    """Make one call of the interface."""
    with grpc.insecure_channel(f"unix:{node_root / SOCKET}", options=_OPTIONS) as channel:
        call = channel.unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return call(request, timeout=timeout_s, wait_for_ready=True)
