"""Asks the kubelet which devices it would give to a pod: `GetAllocatableResources` on its pod resources socket.

A device list that was sent need not have been read: this is how its effect is seen. Source: k8s.io/kubelet,
pkg/apis/podresources/v1/api.proto; the kubelet answers with the healthy devices (`GetAllocatableDevices` of its device
manager, 1.28 to 1.36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.base.errors import KubeletError, KubeletSilent, os_reason
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.pod_resources.api import AllocatableResourcesRequest, AllocatableResourcesResponse
from plugin.kubelet.pod_resources.client import FOLDER, ask
from plugin.kubelet.rpc.status import CallError, Code

if TYPE_CHECKING:
    from pathlib import Path

METHOD = "/v1.PodResourcesLister/GetAllocatableResources"
_BUSY = {Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED}
_HINT = "see the kubelet's log: journalctl -u kubelet"


async def list_allocatable(kubelet_root: Path, deadline_s: float) -> frozenset[str]:
    """Return the ids of all devices that are healthy to the kubelet.

    Raises KubeletSilent where it may answer another time, KubeletError where it does not say at all.
    """
    folder, request = kubelet_root / FOLDER, AllocatableResourcesRequest()
    try:
        answer = await ask(folder, METHOD, request, AllocatableResourcesResponse, deadline_s)
    except OSError as error:
        raise KubeletError(f"{folder} cannot be opened: {os_reason(error)}", _HINT) from error
    except CallError as error:
        kind = KubeletSilent if error.code in _BUSY else KubeletError
        raise kind(f"{folder / KUBELET_SOCKET} does not say what is allocatable: {error.code.name}", _HINT) from error
    return frozenset(device_id for each in answer.devices for device_id in each.device_ids)
