"""A connection to one registered plugin: the calls that a kubelet makes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc

from lab.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from lab.kubelet.registry import Device, Registry
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CALL_TIMEOUT_S = 10.0  # the real one has none for Allocate: a test must end all the same
_SERVICE = "/v1beta1.DevicePlugin"
# gRPC shares connections per address within a process: after a restart that would be the broken one.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


def status_of(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Return status and details of a failed call: grpc's own type for it has no methods."""
    call: Any = error
    return call.code(), call.details() or ""


class Endpoint:
    """One plugin's socket."""

    def __init__(self, folder: Path, name: str) -> None:
        self._address = SocketAddress(folder, name)
        self._channel = grpc.insecure_channel(self._address.target, options=_OPTIONS)
        self._stream: Any = None

    def call(self, method: str, request: Any, response: Any) -> Any:
        """Make one call of the interface."""
        call = self._channel.unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return call(request, timeout=CALL_TIMEOUT_S)

    def options(self) -> api_pb2.DevicePluginOptions:
        """Ask what the plugin offers to do."""
        answer: api_pb2.DevicePluginOptions = self.call(
            "GetDevicePluginOptions", api_pb2.Empty(), api_pb2.DevicePluginOptions
        )
        return answer

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        """Ask which devices to take."""
        request = api_pb2.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        answer: api_pb2.PreferredAllocationResponse = self.call(
            "GetPreferredAllocation", request, api_pb2.PreferredAllocationResponse
        )
        return list(answer.container_responses[0].deviceIDs)

    def allocate(self, device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        """Ask for one container."""
        request = api_pb2.AllocateRequest()
        request.container_requests.add(devices_ids=device_ids)
        answer: api_pb2.AllocateResponse = self.call("Allocate", request, api_pb2.AllocateResponse)
        return answer.container_responses[0]

    def _list_and_watch(self) -> Any:
        call = self._channel.unary_stream(
            f"{_SERVICE}/ListAndWatch",
            request_serializer=api_pb2.Empty.SerializeToString,
            response_deserializer=api_pb2.ListAndWatchResponse.FromString,
        )
        return call(api_pb2.Empty())

    def first_list(self) -> list[Device]:
        """Open a stream, take one list and hang up."""
        stream = self._list_and_watch()
        try:
            return [_device(message) for message in next(stream).devices]
        finally:
            stream.cancel()

    def watch(self, registry: Registry, resource: str, ended: Callable[[str], None]) -> None:
        """Follow the plugin's list in a thread until the stream ends, which `ended` hears; it is not opened again."""
        self._stream = self._list_and_watch()
        threading.Thread(target=self._follow, args=(registry, resource, ended), daemon=True).start()

    def _follow(self, registry: Registry, resource: str, ended: Callable[[str], None]) -> None:
        try:
            for answer in self._stream:
                registry.set_devices(resource, [_device(message) for message in answer.devices])
        except (grpc.RpcError, ValueError):
            pass  # however a stream ends, it has ended: by the plugin, or by a channel that was closed
        finally:
            ended(resource)

    def end_stream(self) -> None:
        """End the stream alone, as a broken kubelet would; the connection stays."""
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> None:
        """Hang up."""
        self.end_stream()
        self._channel.close()
        self._address.close()


def _device(message: api_pb2.Device) -> Device:
    numa_nodes = tuple(int(node.ID) for node in message.topology.nodes)
    return Device(message.ID, is_healthy=message.health == "Healthy", numa_nodes=numa_nodes)
