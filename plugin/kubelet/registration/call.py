"""Tells a kubelet about the daemon's socket, within a deadline. Not here: when to do it (`link`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import KubeletError, KubeletSilent
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.device_plugin import api
from plugin.kubelet.device_plugin.messages import register_request
from plugin.kubelet.rpc.client import call_unary
from plugin.kubelet.rpc.status import CallError, Code
from plugin.system.sockets import SocketAddress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.kubelet.rpc.serving import Method

DEVICE_PLUGINS = "device-plugins"
METHOD = "/v1beta1.Registration/Register"
HINT = "tried again by itself; see the kubelet's log: journalctl -u kubelet"
_MAX_DETAIL = 200


def socket_name(resource: str, mark: str = "") -> str:
    """Return the name of a socket that serves a resource; no resource has a "~" in its name."""
    return f"grapnel-{resource.replace('/', '_')}{mark and '~'}{mark}.sock"


class Registration(Protocol):
    """One method of registration: where the daemon's socket is, and how the kubelet hears of it."""

    socket_folder: Path
    is_found: bool  # the kubelet comes to a socket that appears; else it is told

    def next_socket(self) -> str:
        """Return the name of the socket to serve on."""

    def methods(self) -> Mapping[str, Method]:
        """Return what is served beside the device plugin's calls."""

    def prepare(self) -> None:
        """Make ready for another registration; called before its socket appears."""

    async def announce(self, deadline_s: float) -> None:
        """Make the kubelet know the socket; raises KubeletError."""


class KubeletSocket:
    """Registers one resource by a call on `kubelet.sock`."""

    is_found = False

    def __init__(self, kubelet_root: Path, resource: str) -> None:
        self.socket_folder = kubelet_root / DEVICE_PLUGINS
        self._resource = resource
        self._endpoint = socket_name(resource)

    def next_socket(self) -> str:
        """Return always the same."""
        return self._endpoint

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
            raise self._failure(error, deadline_s) from error
        finally:
            address.close()

    def _failure(self, error: CallError, deadline_s: float) -> KubeletError:
        """Return what to say; always the same for the same trouble, as the log repeats nothing."""
        path = self.socket_folder / KUBELET_SOCKET
        if error.code is Code.UNAVAILABLE:
            return KubeletError(f"no kubelet: nobody answers on {path}", HINT)
        problem = f"{path}: registration of {self._resource} failed"
        if error.code is Code.DEADLINE_EXCEEDED:
            return KubeletSilent(f"{problem}: no answer within {deadline_s:g} s", HINT)
        return KubeletError(f"{problem}: {error.code.name}: {error.detail[:_MAX_DETAIL]}", HINT)
