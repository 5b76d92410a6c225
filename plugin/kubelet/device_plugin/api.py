"""The messages of `deviceplugin/v1beta1`, with the interface's own names. Not here: what goes into them.

A test holds every line against the published `api.proto`, which is in `lab/kubelet/proto`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.kubelet.rpc.codec import Message, boolean, int32, int64, message, messages, string, string_map, strings

if TYPE_CHECKING:
    from collections.abc import Mapping


class Empty(Message):
    """Nothing."""


class DevicePluginOptions(Message):
    """Which optional calls the kubelet shall make."""

    pre_start_required: bool = boolean(1)
    get_preferred_allocation_available: bool = boolean(2)


class RegisterRequest(Message):
    """Announces a socket in the kubelet's folder."""

    version: str = string(1)
    endpoint: str = string(2)
    resource_name: str = string(3)
    options: DevicePluginOptions | None = message(4, DevicePluginOptions)


class NUMANode(Message):
    """A NUMA node by its number."""

    ID: int = int64(1)


class TopologyInfo(Message):
    """Where a device is."""

    nodes: tuple[NUMANode, ...] = messages(1, NUMANode)


class Device(Message):
    """One line of the device list."""

    ID: str = string(1)
    health: str = string(2)
    topology: TopologyInfo | None = message(3, TopologyInfo)


class ListAndWatchResponse(Message):
    """The whole device list."""

    devices: tuple[Device, ...] = messages(1, Device)


class PreStartContainerRequest(Message):
    """A container that is about to start."""

    devices_ids: tuple[str, ...] = strings(1)


class PreStartContainerResponse(Message):
    """Nothing."""


class ContainerPreferredAllocationRequest(Message):
    """A choice for one container."""

    available_deviceIDs: tuple[str, ...] = strings(1)  # noqa: N815 - the interface's name
    must_include_deviceIDs: tuple[str, ...] = strings(2)  # noqa: N815 - the interface's name
    allocation_size: int = int32(3)


class PreferredAllocationRequest(Message):
    """A choice for each container."""

    container_requests: tuple[ContainerPreferredAllocationRequest, ...] = messages(
        1, ContainerPreferredAllocationRequest
    )


class ContainerPreferredAllocationResponse(Message):
    """What was chosen for one container."""

    deviceIDs: tuple[str, ...] = strings(1)  # noqa: N815 - the interface's name


class PreferredAllocationResponse(Message):
    """What was chosen for each container."""

    container_responses: tuple[ContainerPreferredAllocationResponse, ...] = messages(
        1, ContainerPreferredAllocationResponse
    )


class ContainerAllocateRequest(Message):
    """The devices of one container."""

    devices_ids: tuple[str, ...] = strings(1)


class AllocateRequest(Message):
    """The devices of each container."""

    container_requests: tuple[ContainerAllocateRequest, ...] = messages(1, ContainerAllocateRequest)


class Mount(Message):
    """A folder or file of the host in a container."""

    container_path: str = string(1)
    host_path: str = string(2)
    read_only: bool = boolean(3)


class DeviceSpec(Message):
    """A device node of the host in a container."""

    container_path: str = string(1)
    host_path: str = string(2)
    permissions: str = string(3)


class CDIDevice(Message):
    """A device by its qualified CDI name."""

    name: str = string(1)


class ContainerAllocateResponse(Message):
    """What one container gets."""

    envs: Mapping[str, str] = string_map(1)
    mounts: tuple[Mount, ...] = messages(2, Mount)
    devices: tuple[DeviceSpec, ...] = messages(3, DeviceSpec)
    annotations: Mapping[str, str] = string_map(4)
    cdi_devices: tuple[CDIDevice, ...] = messages(5, CDIDevice)


class AllocateResponse(Message):
    """What each container gets."""

    container_responses: tuple[ContainerAllocateResponse, ...] = messages(1, ContainerAllocateResponse)
