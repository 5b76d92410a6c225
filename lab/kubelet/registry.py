"""What the stand-in knows of plugins: their resources, devices and health. No network here."""

from __future__ import annotations

import enum
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Mode(enum.Enum):
    """How the stand-in answers Register."""

    SERVE = "serve"
    REFUSE = "refuse"  # an error at once
    HANG = "hang"  # no answer until the mode changes
    DEAF = "deaf"  # success, but no stream is ever opened
    LOSE = "lose"  # success, but the stream is lost before the answer is given


@dataclass(frozen=True)
class Device:
    """One line of a plugin's list."""

    device_id: str
    is_healthy: bool
    numa_nodes: tuple[int, ...] = ()


@dataclass
class Resource:
    """One resource name. `lists` counts the lists received since registration."""

    name: str
    endpoint: str
    devices: dict[str, Device] = field(default_factory=dict)
    lists: int = 0
    is_watched: bool = False

    def healthy(self) -> list[str]:
        """Return what can be allocated, sorted: the real one keeps a set."""
        return sorted(device.device_id for device in self.devices.values() if device.is_healthy)


class Registry:
    """Resources by name, with a condition to wait for changes. Safe to use from any thread."""

    def __init__(self) -> None:
        self._resources: dict[str, Resource] = {}
        self._changed = threading.Condition()
        self.registrations = 0

    def register(self, name: str, endpoint: str) -> Resource:
        """Remember a plugin; a new registration replaces the one before."""
        with self._changed:
            self.registrations += 1
            resource = Resource(name, endpoint)
            self._resources[name] = resource
            self._changed.notify_all()
            return resource

    def set_devices(self, resource: Resource, devices: list[Device]) -> None:
        """Take a list as it came."""
        with self._changed:
            resource.devices = {device.device_id: device for device in devices}
            resource.lists += 1
            resource.is_watched = True
            self._changed.notify_all()

    def stream_ended(self, resource: Resource) -> None:
        """Mark every device unhealthy: capacity stays, nothing can be allocated."""
        with self._changed:
            resource.is_watched = False
            resource.devices = {
                device.device_id: Device(device.device_id, is_healthy=False, numa_nodes=device.numa_nodes)
                for device in resource.devices.values()
            }
            self._changed.notify_all()

    def get(self, name: str) -> Resource | None:
        """Return the resource if a plugin ever registered it with this kubelet."""
        with self._changed:
            return self._resources.get(name)

    def wait_for(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something holds; False when the time is up."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not holds():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, 0.05))
            return True

    def wake(self) -> None:
        """Make every waiter look again."""
        with self._changed:
            self._changed.notify_all()
