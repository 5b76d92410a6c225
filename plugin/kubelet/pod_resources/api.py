"""The messages of `podresources/v1` that are read, with the interface's own names; what else it says is skipped.

A test holds every line against the published `api.proto`, which is in `lab/podresources/proto`.
"""

from __future__ import annotations

from plugin.kubelet.rpc.codec import Message, messages, string, strings


class ListPodResourcesRequest(Message):
    """Asks for everything."""


class ContainerDevices(Message):
    """Devices of one resource; the kubelet may tell those of a container in several parts."""

    resource_name: str = string(1)
    device_ids: tuple[str, ...] = strings(2)


class CDIDevice(Message):
    """A device by its qualified CDI name."""

    name: str = string(1)


class ClaimResource(Message):
    """A device of a claim."""

    cdi_devices: tuple[CDIDevice, ...] = messages(1, CDIDevice)
    driver_name: str = string(2)
    device_name: str = string(4)


class DynamicResource(Message):
    """What a container has of a ResourceClaim."""

    claim_name: str = string(2)
    claim_resources: tuple[ClaimResource, ...] = messages(4, ClaimResource)


class ContainerResources(Message):
    """What one container has."""

    name: str = string(1)
    devices: tuple[ContainerDevices, ...] = messages(2, ContainerDevices)
    dynamic_resources: tuple[DynamicResource, ...] = messages(5, DynamicResource)


class PodResources(Message):
    """What the containers of one pod have."""

    name: str = string(1)
    namespace: str = string(2)
    containers: tuple[ContainerResources, ...] = messages(3, ContainerResources)


class ListPodResourcesResponse(Message):
    """What every pod of the node has."""

    pod_resources: tuple[PodResources, ...] = messages(1, PodResources)


class AllocatableResourcesRequest(Message):
    """Asks for everything."""


class AllocatableResourcesResponse(Message):
    """All devices that can be allocated or are; processors and memory are left out."""

    devices: tuple[ContainerDevices, ...] = messages(1, ContainerDevices)
