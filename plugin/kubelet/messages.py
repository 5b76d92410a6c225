"""The daemon's values as messages of the device plugin interface. Not here: any decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.kubelet.proto.deviceplugin.v1beta1 import api_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.answer import ContainerAnswer
    from plugin.resources import Offer

API_VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


def plugin_options() -> api_pb2.DevicePluginOptions:
    """Return what the kubelet may call: the preference is there, nothing is to be done before a start."""
    return api_pb2.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)


def register_request(endpoint: str, resource: str) -> api_pb2.RegisterRequest:
    """Return the request that announces the socket `endpoint` in the kubelet's folder."""
    return api_pb2.RegisterRequest(
        version=API_VERSION, endpoint=endpoint, resource_name=resource, options=plugin_options()
    )


def _device(offer: Offer) -> api_pb2.Device:
    message = api_pb2.Device(ID=offer.device_id, health=HEALTHY if offer.is_healthy else UNHEALTHY)
    if offer.numa_node is not None:
        message.topology.nodes.add(ID=offer.numa_node)
    return message


def device_list(offers: Iterable[Offer]) -> api_pb2.ListAndWatchResponse:
    """Return the list that the kubelet watches."""
    return api_pb2.ListAndWatchResponse(devices=[_device(offer) for offer in offers])


def container_response(answer: ContainerAnswer) -> api_pb2.ContainerAllocateResponse:
    """Return what the kubelet passes on to the runtime."""
    return api_pb2.ContainerAllocateResponse(
        envs=answer.envs,
        annotations=answer.annotations,
        mounts=tuple(
            api_pb2.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in answer.mounts
        ),
        cdi_devices=tuple(api_pb2.CDIDevice(name=name) for name in answer.cdi_devices),
        devices=[
            api_pb2.DeviceSpec(
                container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
            for node in answer.nodes
        ],
    )
