"""The other method of registration: the kubelet's plugin watcher finds our socket in `plugins_registry`.

It asks who we are (`GetInfo`), takes the same socket for the device plugin's calls, and tells whether it
took us (`NotifyRegistrationStatus`). Its reconciler runs once a second, and looks once at each socket that
appears, so registering again takes a new socket. One of the same name takes two rounds: in the first
the old one is unregistered. So each has a name of its own, and old and new change places in one round.
A kubelet that starts takes what is there at once. Source: pkg/kubelet/pluginmanager of Kubernetes
(1.34 to 1.36), and k8s.io/kubelet pkg/apis/pluginregistration/v1. Not here: when to register (`link`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.base.errors import KubeletError, KubeletSilent
from plugin.kubelet.device_plugin.messages import API_VERSION
from plugin.kubelet.registration.call import HINT, socket_name
from plugin.kubelet.rpc.codec import Message, boolean, string, strings
from plugin.kubelet.rpc.serving import Unary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.kubelet.rpc.serving import Method

SERVICE = "pluginregistration.Registration"
REGISTRY = "plugins_registry"
_TYPE = "DevicePlugin"
_MAX_DETAIL = 200


class InfoRequest(Message):
    """Nothing."""


class PluginInfo(Message):
    """Who serves a socket; without an endpoint the same socket has the plugin's calls."""

    type: str = string(1)
    name: str = string(2)
    endpoint: str = string(3)
    supported_versions: tuple[str, ...] = strings(4)


class RegistrationStatus(Message):
    """Whether the kubelet took the plugin, and why not."""

    plugin_registered: bool = boolean(1)
    error: str = string(2)


class RegistrationStatusResponse(Message):
    """Nothing."""


class PluginWatcher:
    """Registers one resource through a socket in the watcher's folder."""

    is_found = True

    def __init__(self, kubelet_root: Path, resource: str) -> None:
        self.socket_folder = kubelet_root / REGISTRY
        self._resource = resource
        self._told = asyncio.Event()
        self._status = RegistrationStatus()

    async def get_info(self, _request: InfoRequest) -> PluginInfo:
        """Say who we are."""
        return PluginInfo(type=_TYPE, name=self._resource, supported_versions=(API_VERSION,))

    async def notify_registration_status(self, request: RegistrationStatus) -> RegistrationStatusResponse:
        """Take the kubelet's verdict."""
        self._status = request
        self._told.set()
        return RegistrationStatusResponse()

    def methods(self) -> Mapping[str, Method]:
        """Return what is served beside the device plugin's calls."""
        return {
            f"/{SERVICE}/GetInfo": Unary(InfoRequest, self.get_info),
            f"/{SERVICE}/NotifyRegistrationStatus": Unary(RegistrationStatus, self.notify_registration_status),
        }

    def next_socket(self) -> str:
        """Return a name that this kubelet has not seen; what a daemon that was killed left behind is removed."""
        for stale in self.socket_folder.glob(socket_name(self._resource, "*")):
            with suppress(OSError):
                stale.unlink()
        return socket_name(self._resource, os.urandom(4).hex())

    def prepare(self) -> None:
        """Forget earlier verdicts; called before a new one can come."""
        self._told.clear()

    async def announce(self, deadline_s: float) -> None:
        """Wait for the kubelet to come and to decide; raises KubeletError."""
        where = f"{self.socket_folder}: registration of {self._resource} failed"
        try:
            await asyncio.wait_for(self._told.wait(), deadline_s)
        except asyncio.TimeoutError as error:
            raise KubeletSilent(f"{where}: no kubelet came within {deadline_s:g} s", HINT) from error
        if not self._status.plugin_registered:
            raise KubeletError(f"{where}: {self._status.error[:_MAX_DETAIL]}", HINT)
