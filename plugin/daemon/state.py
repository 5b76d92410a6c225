"""What the daemon knows at the moment. Changed in the event loop's thread alone; read by admin socket and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.devices.inventory import Inventory
from plugin.devices.observer import Observation

if TYPE_CHECKING:
    from plugin.changes.driver_change.release.record import Release


def _nothing_seen() -> Observation:
    return Observation(Inventory())


@dataclass
class State:
    """`observation` is what is shown, `last_seen` what the driver said last: they differ while the node is released."""

    observation: Observation = field(default_factory=_nothing_seen)
    last_seen: Observation = field(default_factory=_nothing_seen)
    release: Release | None = None
    registration: str = "registering with the kubelet"
    is_registered: bool = False

    def set_registration(self, waiting_for: str) -> None:
        """Take what the registration waits for, "" once every resource is registered."""
        self.registration = waiting_for or "registered with the kubelet"
        self.is_registered = not waiting_for
