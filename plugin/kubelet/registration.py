"""Tells a kubelet about the daemon's socket, within a deadline. Not here: when to do it (`link`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from plugin.errors import KubeletError
from plugin.kubelet.folder import KUBELET_SOCKET, SocketAddress
from plugin.kubelet.messages import register_request
from plugin.kubelet.proto.deviceplugin.v1beta1 import api_pb2

if TYPE_CHECKING:
    from pathlib import Path

METHOD = "/v1beta1.Registration/Register"
_MAX_DETAIL = 200


async def register(folder: Path, endpoint: str, resource: str, deadline_s: float) -> None:
    """Register with the kubelet behind `kubelet.sock`; it calls back before it answers."""
    try:
        address = SocketAddress(folder, KUBELET_SOCKET)
    except OSError as error:
        raise KubeletError(f"{folder} cannot be opened: {error.strerror}", "is the kubelet's root right?") from error
    try:
        async with grpc.aio.insecure_channel(address.target, options=(("grpc.enable_http_proxy", 0),)) as channel:
            call = channel.unary_unary(
                METHOD,
                request_serializer=api_pb2.RegisterRequest.SerializeToString,
                response_deserializer=api_pb2.Empty.FromString,
            )
            await call(register_request(endpoint, resource), timeout=deadline_s)
    except grpc.aio.AioRpcError as error:
        code, detail = error.code().name, (error.details() or "")[:_MAX_DETAIL]
        problem = f"{folder / KUBELET_SOCKET}: registration of {resource} failed: {code}: {detail}"
        raise KubeletError(problem, "tried again by itself; see the kubelet's log: journalctl -u kubelet") from error
    finally:
        address.close()
