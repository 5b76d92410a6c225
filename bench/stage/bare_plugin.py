"""Serves a minimal device plugin: the floor for the time from registration to the API."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from lab.kubelet.proto.deviceplugin.v1beta1 import api_pb2
from plugin.kubelet import KUBELET_SOCKET
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESOURCE = "bench.example/thing"
FOLDER = "var/lib/kubelet/device-plugins"
ENDPOINT = "bench.sock"
VERSION = "v1beta1"
TIMEOUT_S = 10.0
# gRPC shares connections per address within a process: after a restart that would be the broken one.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class BarePlugin:
    """Offers ``count`` devices of ``RESOURCE`` to the kubelet of one node, until it is stopped."""

    def __init__(self, node_root: Path, count: int) -> None:
        self._folder = node_root / FOLDER
        self._list = api_pb2.ListAndWatchResponse()
        for number in range(count):
            self._list.devices.add(ID=f"thing-{number}", health="Healthy")
        self._is_over = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4), options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self._address = SocketAddress(self._folder, ENDPOINT)
        self._server.add_insecure_port(self._address.target)

    def start(self) -> float:
        """Serve and register; return the time at which the kubelet had accepted."""
        self._server.start()
        kubelet = SocketAddress(self._folder, KUBELET_SOCKET)
        with grpc.insecure_channel(kubelet.target, options=_OPTIONS) as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=api_pb2.RegisterRequest.SerializeToString,
                response_deserializer=api_pb2.Empty.FromString,
            )
            register(
                api_pb2.RegisterRequest(version=VERSION, endpoint=ENDPOINT, resource_name=RESOURCE), timeout=TIMEOUT_S
            )
            moment = time.monotonic()
        kubelet.close()
        return moment

    def stop(self) -> None:
        """End the stream, like a plugin that is stopped."""
        self._is_over.set()
        self._server.stop(0).wait(TIMEOUT_S)
        self._address.close()
        (self._folder / ENDPOINT).unlink(missing_ok=True)

    def _handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        def options(_request: api_pb2.Empty, _context: object) -> api_pb2.DevicePluginOptions:
            return api_pb2.DevicePluginOptions()

        def list_and_watch(_request: api_pb2.Empty, _context: object) -> Iterator[api_pb2.ListAndWatchResponse]:
            yield self._list
            self._is_over.wait()

        methods = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                options,
                request_deserializer=api_pb2.Empty.FromString,
                response_serializer=api_pb2.DevicePluginOptions.SerializeToString,
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                list_and_watch,
                request_deserializer=api_pb2.Empty.FromString,
                response_serializer=api_pb2.ListAndWatchResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
