"""The kubelet's plugin manager: finds sockets in `plugins_registry`, asks who serves them, and tells them its verdict.

As in `pkg/kubelet/pluginmanager` of Kubernetes 1.34 to 1.36: what it should know follows the folder (inotify), what
it does know follows that in rounds, the first of them at the start. A round unregisters before it registers, and never
does both to one path: a socket that was replaced by one of the same name takes two. It unregisters by the name of the
resource, not by the socket: whoever has that resource now is disconnected. A registration that failed is tried again
after half a second, then twice as long each time. A folder that is removed is not seen again before the next start.
The real one's round is a second.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from lab.kubelet.proto.pluginregistration.v1 import api_pb2
from plugin.system.sockets import SocketAddress, SocketIdentity, socket_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SERVICE = "/pluginregistration.Registration"
ROUND_S = 0.05
_CALL_TIMEOUT_S = 1.0  # the real one's, for GetInfo
_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 122.0
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


@dataclass(frozen=True)
class _Registered:
    """A plugin that was taken."""

    identity: SocketIdentity
    resource: str


class PluginWatcher:
    """Calls `take` with what a socket's owner says of itself and the socket's name; it returns why not, or "".

    `drop` is told the resource of a plugin whose socket is gone.
    """

    def __init__(
        self,
        folder: Path,
        take: Callable[[api_pb2.PluginInfo, str], str],
        drop: Callable[[str], None],
        *,
        round_s: float = ROUND_S,
    ) -> None:
        self._folder = folder
        self._take = take
        self._drop = drop
        self._round_s = round_s
        self._registered: dict[str, _Registered] = {}
        self._failures: dict[str, tuple[float, float]] = {}  # name → when the next attempt is due, pause after it
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._watched = folder.stat().st_ino
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        self._reconcile()
        while not self._stopped.wait(self._round_s):
            self._reconcile()

    def _reconcile(self) -> None:
        desired = self._desired()
        gone = [name for name, known in self._registered.items() if desired.get(name) != known.identity]
        for name in gone:
            self._drop(self._registered.pop(name).resource)
        for name, identity in desired.items():
            due = self._failures.get(name, (0.0, 0.0))[0]
            if name not in self._registered and name not in gone and time.monotonic() >= due:
                self._register(name, identity)

    def _desired(self) -> dict[str, SocketIdentity]:
        """Return the sockets of the folder that is watched, by name."""
        try:
            if self._folder.stat().st_ino != self._watched:
                self._watched = 0  # another folder may have the number
            paths = list(self._folder.iterdir()) if self._watched else []
        except FileNotFoundError:
            self._watched, paths = 0, []
        found = {path.name: socket_identity(path) for path in paths if path.name[0] != "."}
        return {name: identity for name, identity in found.items() if identity is not None}

    def _register(self, name: str, identity: SocketIdentity) -> None:
        try:
            address = SocketAddress(self._folder, name)
        except FileNotFoundError:
            return
        with grpc.insecure_channel(address.target, options=_OPTIONS) as channel:
            try:
                info = _call(channel, "GetInfo", api_pb2.InfoRequest(), api_pb2.PluginInfo)
                problem = self._take(info, name)
                if not problem:
                    self._registered[name] = _Registered(identity, info.name)
                status = api_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
                _call(channel, "NotifyRegistrationStatus", status, api_pb2.RegistrationStatusResponse)
            except grpc.RpcError as error:
                problem = str(error)
                if known := self._registered.pop(name, None):
                    self._drop(known.resource)
        address.close()
        self._note(name, problem)

    def _note(self, name: str, problem: str) -> None:
        """Let the next attempt wait, if there was a problem."""
        if not problem:
            self._failures.pop(name, None)
            return
        pause = min(2 * self._failures[name][1], _MAX_BACKOFF_S) if name in self._failures else _BACKOFF_S
        self._failures[name] = time.monotonic() + pause, pause


def _call(channel: grpc.Channel, method: str, request: Any, response: Any) -> Any:
    call = channel.unary_unary(
        f"{_SERVICE}/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=response.FromString,
    )
    return call(request, timeout=_CALL_TIMEOUT_S)
