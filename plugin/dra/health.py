"""Tells the kubelet the health of the devices of claims: it shows it in the status of their pods."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from plugin.dra import messages as api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugin.dra.devices import DraDevice

HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_HEALTHY, _UNHEALTHY = 1, 2
_TIMEOUT_S, _AGAIN_S = 60, 20.0  # what is not told again within the first is unknown to the kubelet
_MAX_MESSAGE = 1000


class Health:
    """What is told of devices: whoever waits is woken when it changes."""

    def __init__(self) -> None:
        self._pool = ""
        self._devices: tuple[DraDevice, ...] = ()
        self._since = 0
        self._changed = asyncio.Event()

    def show(self, pool: str, devices: tuple[DraDevice, ...]) -> None:
        """Tell this from now on."""
        told = [(each.name, each.unhealthy) for each in devices]
        if (pool, told) == (self._pool, [(each.name, each.unhealthy) for each in self._devices]):
            return
        self._pool, self._devices = pool, devices
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(
        self, _request: api.NodeWatchResourcesRequest, send: Callable[[api.NodeWatchResourcesResponse], Awaitable[None]]
    ) -> None:
        """Tell of all devices, at once, when something changes, and so often that the kubelet goes on believing it."""
        while True:
            changed = self._changed
            await send(self._response())
            try:
                await asyncio.wait_for(changed.wait(), _AGAIN_S)
            except asyncio.TimeoutError:
                continue

    def _response(self) -> api.NodeWatchResourcesResponse:
        now = int(time.time())
        return api.NodeWatchResourcesResponse(
            devices=tuple(
                api.DeviceHealth(
                    device=api.DeviceIdentifier(pool_name=self._pool, device_name=each.name),
                    health=_UNHEALTHY if each.unhealthy else _HEALTHY,
                    last_updated_time=now,
                    health_check_timeout_seconds=_TIMEOUT_S,
                    message=each.unhealthy[:_MAX_MESSAGE],
                )
                for each in self._devices
            )
        )
