"""Asks the kubelet who has which devices: `v1.PodResourcesLister/List` on its pod resources socket.

Not here: what is made of the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import KubeletError, os_reason
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.cdi_names import OTHERS, memory_of, other_id, uuid_of
from plugin.kubelet.pod_resources.api import ListPodResourcesRequest, ListPodResourcesResponse
from plugin.kubelet.pod_resources.attribution import CLAIM, DeviceAssignment, PodContainer
from plugin.kubelet.rpc.client import call_unary
from plugin.kubelet.rpc.codec import Message
from plugin.kubelet.rpc.connection import Limits
from plugin.kubelet.rpc.status import CallError
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plugin.kubelet.pod_resources.api import ContainerResources

_Response = TypeVar("_Response", bound=Message)
METHOD = "/v1.PodResourcesLister/List"
FOLDER = "pod-resources"  # below the kubelet's root
_MAX_ANSWER_BYTES = 16 << 20  # the limit of the kubelet's own clients
_MAX_DETAIL = 200


def assignments_of(response: ListPodResourcesResponse) -> tuple[DeviceAssignment, ...]:
    """Return what an answer says, in its order."""
    return tuple(
        DeviceAssignment(PodContainer(pod.namespace, pod.name, container.name), *found)
        for pod in response.pod_resources
        for container in pod.containers
        for found in _resources_of(container)
    )


def _resources_of(
    container: ContainerResources,
) -> Iterator[tuple[str, tuple[str, ...], tuple[tuple[str, int], ...]]]:
    """Yield what a container has: devices by resource, and those of claims that are this daemon's to give."""
    for devices in container.devices:
        yield devices.resource_name, devices.device_ids, ()
    for claim in container.dynamic_resources:
        names = dict.fromkeys(each.name for resource in claim.claim_resources for each in resource.cdi_devices)
        uuids = tuple(uuid for name in names if (uuid := uuid_of(name)))
        if uuids:
            memory = tuple(found[:2] for name in names if (found := memory_of(name)) is not None)
            yield f"{CLAIM}{claim.claim_name}", uuids, memory
        others = tuple(other_id(each.device_name) for each in claim.claim_resources if each.driver_name == OTHERS)
        if others:
            yield f"{CLAIM}{claim.claim_name}", others, ()


async def ask(folder: Path, method: str, request: Message, response: type[_Response], deadline_s: float) -> _Response:
    """Make one call on the socket in this folder; raises OSError where that cannot be opened, else CallError."""
    address = SocketAddress(folder, KUBELET_SOCKET)
    limits = Limits(message_bytes=_MAX_ANSWER_BYTES)
    try:
        return await call_unary(address.path, method, request, response, deadline_s=deadline_s, limits=limits)
    finally:
        address.close()


async def list_assignments(kubelet_root: Path, deadline_s: float) -> tuple[DeviceAssignment, ...]:
    """Ask the kubelet; raises KubeletError, also for a malformed answer."""
    folder, hint = kubelet_root / FOLDER, "metrics have no pod labels until it answers"
    try:
        answer = await ask(folder, METHOD, ListPodResourcesRequest(), ListPodResourcesResponse, deadline_s)
    except OSError as error:
        raise KubeletError(f"{folder} cannot be opened: {os_reason(error)}", hint) from error
    except CallError as error:
        words = f"{error.code.name}: {error.detail[:_MAX_DETAIL]}"
        raise KubeletError(f"{folder / KUBELET_SOCKET} does not say who has which device: {words}", hint) from error
    return assignments_of(answer)
