"""What the daemon knows at the moment. Changed in the event loop's thread alone; read by admin socket and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.devices.inventory import Inventory
from plugin.devices.observer import Observation

if TYPE_CHECKING:
    from plugin.base.log import Logger
    from plugin.changes.driver_change.release.record import Release

_REGISTERING, _REGISTERED = "registering with the kubelet", "registered with the kubelet"


def _nothing_seen() -> Observation:
    return Observation(Inventory())


@dataclass
class State:
    """`observation` is what is shown, `last_seen` what the driver said last: they differ while the node is released.

    `interfaces` are those by which GPUs are given to pods, `waits` what each of the kubelet's interfaces waits for, ""
    once all of it is registered: lists that are empty by now are registered as well.
    """

    observation: Observation = field(default_factory=_nothing_seen)
    last_seen: Observation = field(default_factory=_nothing_seen)
    release: Release | None = None
    interfaces: tuple[str, ...] = ()
    waits: dict[str, str] = field(default_factory=dict)

    @property
    def registration(self) -> str:
        """How it stands with the kubelet, for people."""
        heard = [self.waits[each] for each in self.interfaces if each in self.waits]
        return next(filter(None, heard), _REGISTERED) if heard else _REGISTERING

    @property
    def is_registered(self) -> bool:
        """Whether all is registered by which GPUs are given."""
        return self.registration == _REGISTERED


def log_changes(logger: Logger, before: Observation, now: Observation) -> None:
    """Log the driver's state, what is missing, and every device that became unhealthy or healthy again."""
    hint = {"hint": now.hint} if now.hint else {}
    logger.standing("driver", now.waiting_for, **hint)
    current = dict(now.inventory.findings)
    for topic in {**dict(before.inventory.findings), **current}:
        logger.standing(topic, current.get(topic, ""))
    healthy = {device.gpu.uuid: device.unhealthy for device in before.inventory.devices}
    for device in now.inventory.devices:
        was = healthy.get(device.gpu.uuid, "")
        if device.unhealthy and not was:
            logger.warning("unhealthy", device=device.gpu.uuid, reason=device.unhealthy)
        elif was and not device.unhealthy:
            logger.info("healthy again", device=device.gpu.uuid, was=was)
