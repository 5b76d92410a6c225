"""Asks the kubelet which devices it would give to a pod: `GetAllocatableResources` on its pod resources socket.

A device list that was sent need not have been read: this is how its effect is seen. Source: k8s.io/kubelet,
pkg/apis/podresources/v1/api.proto; the kubelet answers with the healthy devices (`GetAllocatableDevices` of its device
manager, 1.28 to 1.36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.errors import KubeletError, KubeletSilent
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.pod_resources.client import FOLDER
from plugin.kubelet.rpc.client import call_unary
from plugin.kubelet.rpc.codec import Message, messages, string, strings
from plugin.kubelet.rpc.connection import Limits
from plugin.kubelet.rpc.status import CallError, Code
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from pathlib import Path

METHOD = "/v1.PodResourcesLister/GetAllocatableResources"
_MAX_ANSWER_BYTES = 16 << 20  # the limit of the kubelet's own clients
_BUSY = {Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}
_HINT = "see the kubelet's log: journalctl -u kubelet"


class AllocatableResourcesRequest(Message):
    """Nothing."""


class ContainerDevices(Message):
    """Devices of one resource."""

    resource_name: str = string(1)
    device_ids: tuple[str, ...] = strings(2)


class AllocatableResourcesResponse(Message):
    """All devices that can be allocated or are; processors and memory are left out."""

    devices: tuple[ContainerDevices, ...] = messages(1, ContainerDevices)


async def list_allocatable(kubelet_root: Path, deadline_s: float) -> frozenset[str]:
    """Return the ids of all devices that are healthy to the kubelet.

    Raises KubeletSilent where it may answer another time, KubeletError where it does not say at all.
    """
    folder = kubelet_root / FOLDER
    try:
        address = SocketAddress(folder, KUBELET_SOCKET)
    except OSError as error:
        raise KubeletError(f"{folder} cannot be opened: {(error.strerror or str(error)).lower()}", _HINT) from error
    request, limits = AllocatableResourcesRequest(), Limits(message_bytes=_MAX_ANSWER_BYTES)
    try:
        answer = await call_unary(
            address.path, METHOD, request, AllocatableResourcesResponse, deadline_s=deadline_s, limits=limits
        )
    except CallError as error:
        kind = KubeletSilent if error.code in _BUSY else KubeletError
        raise kind(f"{folder / KUBELET_SOCKET} does not say what is allocatable: {error.code.name}", _HINT) from error
    finally:
        address.close()
    return frozenset(device_id for each in answer.devices for device_id in each.device_ids)
