"""The daemon's values as messages of the device plugin interface. Not here: any decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.kubelet.device_plugin import api

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.devices.allocation.answer import ContainerAnswer
    from plugin.devices.resources import Offer

API_VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


def plugin_options() -> api.DevicePluginOptions:
    """Return what the kubelet may call: the preference is there, nothing is to be done before a start."""
    return api.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)


def register_request(endpoint: str, resource: str) -> api.RegisterRequest:
    """Return the request that announces the socket `endpoint` in the kubelet's folder."""
    return api.RegisterRequest(version=API_VERSION, endpoint=endpoint, resource_name=resource, options=plugin_options())


def _device(offer: Offer) -> api.Device:
    topology = None if offer.numa_node is None else api.TopologyInfo(nodes=(api.NUMANode(ID=offer.numa_node),))
    return api.Device(ID=offer.device_id, health=HEALTHY if offer.is_healthy else UNHEALTHY, topology=topology)


def device_list(offers: Iterable[Offer]) -> api.ListAndWatchResponse:
    """Return the list that the kubelet watches."""
    return api.ListAndWatchResponse(devices=tuple(_device(offer) for offer in offers))


def container_response(answer: ContainerAnswer) -> api.ContainerAllocateResponse:
    """Return what the kubelet passes on to the runtime."""
    return api.ContainerAllocateResponse(
        envs=answer.envs,
        annotations=answer.annotations,
        mounts=tuple(
            api.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in answer.mounts
        ),
        cdi_devices=tuple(api.CDIDevice(name=name) for name in answer.cdi_devices),
        devices=tuple(
            api.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
            for node in answer.nodes
        ),
    )
