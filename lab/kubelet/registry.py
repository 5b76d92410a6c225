"""What the stand-in knows of plugins: their resources, devices and health. No network here."""

from __future__ import annotations

import enum
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


GRACE_S = 300.0  # endpointStopGracePeriod


class Mode(enum.Enum):
    """How the stand-in answers Register."""

    SERVE = "serve"
    REFUSE = "refuse"  # an error at once
    HANG = "hang"  # no answer until the mode changes
    DEAF = "deaf"  # success, but no stream is ever opened
    DROP = "drop"  # success, but the connection is gone before a stream is opened on it
    LOSE = "lose"  # success, but the stream is lost before the answer is given


@dataclass(frozen=True)
class Device:
    """One line of a plugin's list."""

    device_id: str
    is_healthy: bool
    numa_nodes: tuple[int, ...] = ()


@dataclass
class Resource:
    """One resource name. `lists` counts the lists since its registration, `stopped_at` is 0 unless its stream ended."""

    name: str
    endpoint: str
    devices: dict[str, Device] = field(default_factory=dict)
    lists: int = 0
    is_watched: bool = False
    stopped_at: float = 0.0

    def healthy(self) -> list[str]:
        """Return what can be allocated, sorted: the real one keeps a set."""
        return sorted(device.device_id for device in self.devices.values() if device.is_healthy)


class Registry:
    """Resources by name, with a condition to wait for changes. Safe to use from any thread."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self.grace_s = grace_s
        self._resources: dict[str, Resource] = {}
        self._changed = threading.Condition()
        self.registrations = 0

    def register(self, name: str, endpoint: str) -> Resource:
        """Remember a plugin; a new registration replaces the one before, its devices stay as they were until a list."""
        with self._changed:
            self.registrations += 1
            known = self._resources.get(name)
            resource = Resource(name, endpoint, known.devices if known else {})
            self._resources[name] = resource
            self._changed.notify_all()
            return resource

    def set_devices(self, name: str, devices: list[Device]) -> None:
        """Take a list as it came, whichever connection brought it."""
        with self._changed:
            resource = self._resources[name]
            resource.devices = {device.device_id: device for device in devices}
            resource.lists += 1
            resource.is_watched = True
            self._changed.notify_all()

    def stream_ended(self, name: str) -> None:
        """Mark every device unhealthy: capacity stays for `GRACE_S`, nothing can be allocated."""
        with self._changed:
            resource = self._resources[name]
            resource.is_watched = False
            resource.stopped_at = time.monotonic()
            resource.devices = {
                device.device_id: Device(device.device_id, is_healthy=False, numa_nodes=device.numa_nodes)
                for device in resource.devices.values()
            }
            self._changed.notify_all()

    def capacity(self, name: str) -> int:
        """Return how many devices the node status shows: after the grace period none of a plugin that has gone."""
        with self._changed:
            known = self._resources.get(name)
            if known is None or (known.stopped_at and time.monotonic() - known.stopped_at > self.grace_s):
                return 0
            return len(known.devices)

    def get(self, name: str) -> Resource | None:
        """Return the resource if a plugin ever registered it with this kubelet."""
        with self._changed:
            return self._resources.get(name)

    def names(self) -> list[str]:
        """Return every resource that was registered with this kubelet."""
        with self._changed:
            return sorted(self._resources)

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
