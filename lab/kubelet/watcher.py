"""The kubelet's plugin watcher: finds sockets in `plugins_registry`, asks who serves them, and tells them its verdict.

As in `pkg/kubelet/pluginmanager`, each socket that appears is asked once; one that is removed is forgotten.
The real one looks once a second, this one more often, so that tests are fast.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc

from lab.kubelet.proto.pluginregistration.v1 import api_pb2
from plugin.kubelet.folder import SocketAddress, SocketIdentity, socket_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SERVICE = "/pluginregistration.Registration"
_LOOK_S = 0.02
_CALL_TIMEOUT_S = 1.0  # the real one's, for GetInfo
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


class PluginWatcher:
    """Calls `take` with what a socket's owner says of itself and the socket's name; it returns why not, or ""."""

    def __init__(self, folder: Path, take: Callable[[api_pb2.PluginInfo, str], str]) -> None:
        self._folder = folder
        self._take = take
        self._known: dict[str, SocketIdentity | None] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            present = {path.name: socket_identity(path) for path in self._folder.iterdir() if path.name[0] != "."}
            changed = [name for name, identity in present.items() if identity and self._known.get(name) != identity]
            self._known = present
            for name in changed:
                self._register(name)

    def _register(self, name: str) -> None:
        try:
            address = SocketAddress(self._folder, name)
        except FileNotFoundError:
            return
        with grpc.insecure_channel(address.target, options=_OPTIONS) as channel:
            try:
                info = _call(channel, "GetInfo", api_pb2.InfoRequest(), api_pb2.PluginInfo)
                problem = self._take(info, name)
                status = api_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
                _call(channel, "NotifyRegistrationStatus", status, api_pb2.RegistrationStatusResponse)
            except grpc.RpcError:
                self._known.pop(name, None)  # asked again, as the real one does after a while
        address.close()


def _call(channel: grpc.Channel, method: str, request: Any, response: Any) -> Any:  # noqa: ANN401 - generated classes
    call = channel.unary_unary(
        f"{_SERVICE}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=response.FromString,
    )
    return call(request, timeout=_CALL_TIMEOUT_S)
