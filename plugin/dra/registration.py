"""Lets the kubelet find the driver's socket in `plugins_registry`, and keeps it there.

The kubelet asks who serves it (`GetInfo`), and takes the same socket for all calls. A kubelet that starts finds what
is there, so nothing has to be done again. Each daemon has a socket of its own name: a kubelet that knows the old one
changes them in one round, and keeps the slices of a driver that is back within 30 s (pkg/kubelet/cm/dra/plugin).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.base.errors import KubeletError
from plugin.dra.devices import DRIVER
from plugin.dra.service import HEALTH_SERVICES, PLUGIN_SERVICES
from plugin.kubelet.device_plugin.server import PluginServer
from plugin.kubelet.registration.inotify import FolderWatch
from plugin.kubelet.registration.watcher import (
    REGISTRY,
    SERVICE,
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from plugin.kubelet.rpc.serving import Unary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.kubelet.rpc.serving import Method

_LOOK_S = 2.0
_MAX_DETAIL = 200


class Registration:
    """`registered` is called whenever a kubelet took the driver; `report` hears why none has, "" once one did."""

    def __init__(
        self,
        kubelet_root: Path,
        methods: Mapping[str, Method],
        registered: Callable[[], None],
        report: Callable[[str], None],
        logger: Logger,
        *,
        driver: str = DRIVER,
    ) -> None:
        self._driver = driver
        self._prefix = f"grapnel-{driver}~"
        self._topic = f"kubelet: claims of {driver}"
        self._topic_of_bugs = f"kubelet: offering claims of {driver}"
        self._folder = kubelet_root / REGISTRY
        self._registered = registered
        self._report = report
        self._log = logger
        own = {
            f"/{SERVICE}/GetInfo": Unary(InfoRequest, self._get_info),
            f"/{SERVICE}/NotifyRegistrationStatus": Unary(RegistrationStatus, self._notify),
        }
        self._server = PluginServer(self._folder, {**methods, **own}, logger)
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._is_taken = False

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet has taken the driver, and is still connected. In any thread."""
        return self._is_taken and self._server.open_connections > 0

    async def run(self) -> None:
        """Serve until stopped."""
        watch = FolderWatch(self._folder, self._wake.set)
        try:
            while not self._is_stopping:
                self._wake.clear()
                watch.renew()
                await self._look()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), _LOOK_S)
        finally:
            watch.close()
            await self._server.stop(grace_s=0.5)

    def stop(self) -> None:
        """Make `run` end."""
        self._is_stopping = True
        self._wake.set()

    async def _look(self) -> None:
        try:
            await self._serve()
        except Exception as error:  # noqa: BLE001 - a task that nothing waits for: without it no claim is served
            self._log.standing(
                self._topic_of_bugs, f"claims: bug: {error!r:.256}", hint="please report it; it is tried again"
            )
        else:
            self._log.standing(self._topic_of_bugs)

    async def _serve(self) -> None:
        if self._server.is_in_place():
            return
        self._is_taken = False
        if not self._folder.is_dir():
            self._tell(f"no kubelet: {self._folder} does not exist")
            return
        try:
            await self._server.serve(self._next_socket())
        except KubeletError as error:
            self._tell(error.message)
        else:
            self._tell(f"waiting for the kubelet to take the driver {self._driver}")

    def _next_socket(self) -> str:
        """Return a name that this kubelet has not seen; what a daemon that was killed left behind is removed."""
        for stale in self._folder.glob(f"{self._prefix}*.sock"):
            with suppress(OSError):
                stale.unlink()
        return f"{self._prefix}{os.urandom(4).hex()}.sock"

    def _tell(self, problem: str) -> None:
        self._report(problem)

    async def _get_info(self, _request: InfoRequest) -> PluginInfo:
        self._is_taken = False  # another kubelet than the one before: it has yet to say so
        # The kubelet takes the first that it knows of each kind.
        return PluginInfo(type="DRAPlugin", name=self._driver, supported_versions=(*PLUGIN_SERVICES, *HEALTH_SERVICES))

    async def _notify(self, request: RegistrationStatus) -> RegistrationStatusResponse:
        if request.plugin_registered:
            self._is_taken = True
            self._log.standing(self._topic)
            self._log.info("registered", driver=self._driver)
            self._tell("")
            asyncio.get_running_loop().call_soon(self._registered)  # once the kubelet has its answer
        else:
            problem = f"the kubelet does not take the driver {self._driver}: {request.error[:_MAX_DETAIL]}"
            self._log.standing(self._topic, problem, hint="Kubernetes 1.34 or later? see journalctl -u kubelet")
            self._tell(problem)
        return RegistrationStatusResponse()
