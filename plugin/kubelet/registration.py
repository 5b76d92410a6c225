"""Tells a kubelet about the daemon's socket, within a deadline. Not here: when to do it (`link`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plugin.errors import KubeletError
from plugin.kubelet import api
from plugin.kubelet.folder import KUBELET_SOCKET, SocketAddress
from plugin.kubelet.messages import register_request
from plugin.rpc.client import call_unary
from plugin.rpc.status import CallError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.rpc.serving import Method

DEVICE_PLUGINS = "device-plugins"
METHOD = "/v1beta1.Registration/Register"
_MAX_DETAIL = 200


class Registration(Protocol):
    """A way to register: where the daemon's socket is, and how the kubelet hears of it."""

    socket_folder: Path
    needs_new_socket: bool  # for each registration, or only where there is none

    def methods(self) -> Mapping[str, Method]:
        """Return what is served beside the device plugin's calls."""

    def prepare(self) -> None:
        """Make ready for a new socket; called before it appears."""

    async def announce(self, deadline_s: float) -> None:
        """Make the kubelet know the socket; raises KubeletError."""


class KubeletSocket:
    """Registers one resource by a call on `kubelet.sock`."""

    needs_new_socket = False

    def __init__(self, kubelet_root: Path, resource: str, endpoint: str) -> None:
        self.socket_folder = kubelet_root / DEVICE_PLUGINS
        self._resource = resource
        self._endpoint = endpoint

    def methods(self) -> Mapping[str, Method]:
        """Return nothing: the kubelet asks nothing more."""
        return {}

    def prepare(self) -> None:
        """Do nothing: the kubelet is told, it does not look."""

    async def announce(self, deadline_s: float) -> None:
        """Register with the kubelet behind `kubelet.sock`; it calls back before it answers."""
        folder = self.socket_folder
        try:
            address = SocketAddress(folder, KUBELET_SOCKET)
        except OSError as error:
            raise KubeletError(
                f"{folder} cannot be opened: {error.strerror}", "is the kubelet's root right?"
            ) from error
        request = register_request(self._endpoint, self._resource)
        try:
            await call_unary(address.path, METHOD, request, api.Empty, deadline_s=deadline_s)
        except CallError as error:
            code, detail = error.code.name, error.detail[:_MAX_DETAIL]
            problem = f"{folder / KUBELET_SOCKET}: registration of {self._resource} failed: {code}: {detail}"
            hint = "tried again by itself; see the kubelet's log: journalctl -u kubelet"
            raise KubeletError(problem, hint) from error
        finally:
            address.close()
