"""Tells systemd what the daemon is doing (sd_notify(3)). Not here: anything else of systemd."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.changes.driver_change.release.record import Release
    from plugin.devices.observer import Observation

_SHOWN = 3  # resources of other devices, in one line


def notify(message: str, address: str | None = None) -> None:
    """Send a message such as `READY=1` to the service manager; does nothing without one."""
    target = os.environ.get("NOTIFY_SOCKET", "") if address is None else address
    if not target:
        return
    if target.startswith("@"):
        target = "\0" + target[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagram:
        try:
            datagram.sendto(message.encode(), target)
        except OSError:
            return  # a service manager that has gone is not a reason to stop serving GPUs


class ServiceStatus:
    """The line that `systemctl status` shows; the first one says that the service is ready as well."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._said = ""

    @property
    def is_ready(self) -> bool:
        """Whether the service manager has been told anything."""
        return bool(self._said)

    def say(self, status: str) -> None:
        """Tell the service manager, unless it knows."""
        if status != self._said:
            ready = "" if self.is_ready else "READY=1\n"
            self._notify(f"{ready}STATUS={status}")
            self._said = status


def status_line(
    release: Release | None, observation: Observation, *, is_observed: bool, is_offered: bool, kubelet: str
) -> str:
    """Return what the service does. `is_observed`: since the start or the resume; `kubelet`: how it stands with it."""
    devices = observation.inventory.devices
    if release is not None:
        return f"{release.describe()}: no GPU is offered"
    if observation.waiting_for or not devices:
        return observation.waiting_for or "no GPU has a device node"
    if not is_offered:
        return "no GPU is one that the settings offer: see the journal"
    unhealthy = sum(not device.is_healthy for device in devices) if is_observed else 0
    told = f"; {unhealthy} of {len(devices)} GPUs unhealthy: grapnel-node devices" if unhealthy else ""
    return kubelet + told


def others_words(resources: tuple[str, ...]) -> str:
    """Return what follows the line on a node with resources of other devices, "" where there are none."""
    if not resources:
        return ""
    more = f" and {len(resources) - _SHOWN} more" if len(resources) > _SHOWN else ""
    return f"; other devices: {', '.join(resources[:_SHOWN])}{more}"
